package cdc

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func portOf(server *testenv.Server) string { return strconv.Itoa(server.Port) }

// Settings that only a starting server takes over.
func TestExamine_StartupSettings(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		server := testenv.StartPostgres(t, major, testenv.Config{Settings: map[string]string{
			"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1",
		}})
		db, cfg := streamOn(t, server)
		db.Exec(t, "SELECT pg_create_physical_replication_slot('other')")
		findings := examine(t, cfg)
		for _, check := range []string{"wal-level", "replication-slots"} {
			f := found(t, findings, check)
			require.Equal(t, LevelFault, f.Level)
			require.Contains(t, f.Fix, "; then restart PostgreSQL")
			carryOut(t, db, f.Fix)
		}
		f := found(t, findings, "wal-senders")
		require.Equal(t, LevelWarning, f.Level)
		carryOut(t, db, f.Fix)
		server.Restart(t, testenv.Fast)
		db.Conn.Reset()
		findings = examine(t, cfg)
		for _, check := range []string{"wal-level", "replication-slots", "wal-senders", "replication-connection"} {
			absent(t, findings, check)
		}
	})
}

func TestExamine_SQLASCII(t *testing.T) {
	t.Parallel()
	server := testenv.Postgres(t, testenv.Majors()[0])
	db, cfg := streamOn(t, server)
	db.Exec(t, "CREATE DATABASE "+db.Name+"_ascii ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	t.Cleanup(func() { server.Exec(t, "DROP DATABASE "+db.Name+"_ascii") })
	cfg.ConnString = Secret(server.DSN(db.Name + "_ascii"))
	require.Equal(t, LevelWarning, found(t, examine(t, cfg), "encoding").Level)
}

func TestExamine_SenderTimeout(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		role := asRole(t, db, cfg, "SUPERUSER REPLICATION")
		for _, timeout := range []string{"2s", "1h"} {
			db.Exec(t, "ALTER ROLE "+role+" SET wal_sender_timeout = '"+timeout+"'")
			mended(t, db, cfg, "wal-sender-timeout", LevelWarning, "wal_sender_timeout")
		}
		db.Exec(t, "ALTER ROLE "+role+" SET wal_sender_timeout = 0")
		absent(t, examine(t, cfg), "wal-sender-timeout")
		cfg.WALSenderTimeout = 3 * time.Second
		require.Contains(t, found(t, examine(t, cfg), "wal-sender-timeout").Found, "3s")
	})
}

// Settings that a running server takes over.
func TestExamine_ReloadedSettings(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, 18, testenv.Config{})
	db, cfg := streamOn(t, server)
	set := func(setting, value string) {
		db.Exec(t, "ALTER SYSTEM SET "+setting+" = '"+value+"'")
		db.Exec(t, "SELECT pg_reload_conf()")
		require.Eventually(t, func() bool {
			var now string
			require.NoError(t, db.QueryRow(t, "SELECT reset_val FROM pg_settings WHERE name = $1", setting).Scan(&now))
			return now == value
		}, time.Minute, 10*time.Millisecond)
	}
	mended(t, db, cfg, "slot-wal-limit", LevelWarning, "-1")
	set("idle_replication_slot_timeout", "3600")
	mended(t, db, cfg, "slot-idle-timeout", LevelWarning, "1h")
	set("synchronous_standby_names", "*")
	mended(t, db, cfg, "synchronous-standby-names", LevelFault, "counts walrelay's connection")

	db.Exec(t, "SET synchronous_commit = local")
	set("synchronous_standby_names", "walrelay, other")
	f := found(t, examine(t, cfg), "synchronous-standby-names")
	require.Contains(t, f.Fix, "application_name=walrelay_relay")
	cfg.ConnString += "&application_name=walrelay_relay"
	absent(t, examine(t, cfg), "synchronous-standby-names")
	set("synchronous_standby_names", "")
}

func TestJudgeClock(t *testing.T) {
	t.Parallel()
	require.Equal(t, LevelOK, judgeClock(3*time.Second, time.Second).Level)
	require.Equal(t, LevelOK, judgeClock(8*time.Second, 10*time.Second).Level) // the answer came too late to tell
	f := judgeClock(-8*time.Second, time.Second)
	require.Equal(t, LevelWarning, f.Level)
	require.Contains(t, f.Found, "8s")
	requireWhole(t, []Finding{f})
}

func TestExamine_KnownBugs(t *testing.T) {
	t.Parallel()
	e := newExamination(validConfig())
	e.server.Version = 150007
	require.NoError(t, e.version(t.Context()))
	requireWhole(t, e.findings)
	require.Len(t, e.findings, 4)
	require.Contains(t, e.findings[1].Fix, "newest release of PostgreSQL 15")

	e = newExamination(validConfig())
	e.server.Version = 130022
	require.NoError(t, e.version(t.Context()))
	require.Equal(t, []string{"version fault"}, notOK(e.findings))
}
