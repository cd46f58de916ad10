package cdc

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// serve answers every connection until the test ends.
func serve(t *testing.T, answer func(net.Conn)) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				answer(conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return listener.Addr().String()
}

func TestExamine_Transport(t *testing.T) {
	t.Parallel()
	cfg := validConfig()
	cfg.ConnString = "postgres://u:hunter2@db.invalid:5433/db?sslmode=require"
	e := newExamination(cfg)
	e.transport()
	requireWhole(t, e.findings)
	require.Len(t, e.findings, 1)
	require.Equal(t, "server db.invalid:5433", e.findings[0].Object)
	require.Contains(t, e.findings[0].Found, "sslmode=require is in force")
	require.Equal(t, "set sslmode=verify-full and sslrootcert in WALRELAY_DATABASE_URL", e.findings[0].Fix)
}

// PgBouncer in its default configuration refuses the settings of our sessions.
func TestExamine_Pooler(t *testing.T) {
	t.Parallel()
	addr := serve(t, func(conn net.Conn) {
		backend := pgproto3.NewBackend(conn, conn)
		_, _ = backend.ReceiveStartupMessage()
		backend.Send(&pgproto3.ErrorResponse{
			Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: bytea_output",
		})
		_ = backend.Flush()
	})
	cfg := validConfig()
	cfg.ConnString = Secret("postgres://u:hunter2@" + addr + "/db?sslmode=disable")
	f := found(t, examine(t, cfg), "connection")
	require.Equal(t, LevelFault, f.Level)
	require.Contains(t, f.Found, "refused by a pooler")
}

// A proxy that passes everything on is told by the process id that it makes up.
func TestExamine_Proxy(t *testing.T) {
	t.Parallel()
	db, cfg := newStream(t, 18)
	server := db.Server()
	addr := serve(t, func(client net.Conn) {
		upstream, err := net.Dial("tcp", "127.0.0.1:"+portOf(server))
		if err != nil {
			return
		}
		defer upstream.Close()
		go func() {
			_, _ = io.Copy(upstream, client)
			_ = upstream.(*net.TCPConn).CloseWrite()
		}()
		buffer := make([]byte, 1<<16)
		for {
			n, err := upstream.Read(buffer)
			// BackendKeyData: K, length 12 (16 with a longer key), process id, key.
			if at := bytes.Index(buffer[:n], []byte("K\x00\x00\x00\x0c")); at >= 0 && at+9 <= n {
				binary.BigEndian.PutUint32(buffer[at+5:], 4242)
			}
			if _, writeErr := client.Write(buffer[:n]); err != nil || writeErr != nil {
				return
			}
		}
	})
	cfg.ConnString = Secret("postgres://postgres:hunter2@" + addr + "/" + db.Name + "?sslmode=disable")
	f := found(t, examine(t, cfg), "connection")
	require.Equal(t, LevelWarning, f.Level)
	require.Contains(t, f.Found, "a pooler or proxy stands between")
}

// What cannot be looked at in time is a finding, and does not keep the rest from being looked at.
func TestExamine_LockedTables(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		register(t, cfg)
		conn, err := pgx.Connect(t.Context(), db.DSN)
		require.NoError(t, err)
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), "BEGIN; LOCK TABLE events, walrelay.streams")
		require.NoError(t, err)
		findings := examine(t, cfg)
		for _, check := range []string{"sample", "stream", "slot"} {
			f := found(t, findings, check)
			require.Equal(t, LevelUnknown, f.Level)
			require.Contains(t, f.Found, "lock timeout")
		}
		require.True(t, slices.ContainsFunc(findings, func(f Finding) bool {
			return f.Check == "table" && f.Level == LevelOK
		}))
		require.Equal(t, LevelWarning, found(t, findings, "slot-wal-limit").Level)
	})
}
