package cdc

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// The slot stands where it did at the last checkpoint, as after a crash of the server; what was
// confirmed since is in the registry.
func TestStartReplication_ResumesAtTheRecordedPosition(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		register(t, cfg)
		var end pglogrepl.LSN
		db.Exec(t, "INSERT INTO events VALUES (1, 'a', 'k', 'first')")
		require.NoError(t, db.QueryRow(t, "SELECT pg_current_wal_lsn()::text").Scan(&end))
		s := dial(t, cfg)
		require.NoError(t, s.Registry().Confirm(t.Context(), end, s.Timeline, time.Time{}))
		db.Exec(t, "INSERT INTO events VALUES (2, 'a', 'k', 'second')")

		reg, err := s.Register(t.Context())
		require.NoError(t, err)
		require.Equal(t, end, reg.Confirmed)
		require.Less(t, reg.Slot.ConfirmedFlush, end)
		require.NoError(t, s.StartReplication(t.Context(), reg.Confirmed))
		insert := nextInsert(t, s)
		require.Contains(t, insert, "second")
		require.NotContains(t, insert, "first")
	})
}

// nextInsert waits for the next Insert message of the stream.
func nextInsert(t *testing.T, s *Server) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		message, err := s.Repl.ReceiveMessage(ctx)
		require.NoError(t, err)
		data, ok := message.(*pgproto3.CopyData)
		if !ok || data.Data[0] != pglogrepl.XLogDataByteID {
			continue
		}
		log, err := pglogrepl.ParseXLogData(data.Data[1:])
		require.NoError(t, err)
		if log.WALData[0] == byte(pglogrepl.MessageTypeInsert) {
			return string(log.WALData)
		}
	}
}
