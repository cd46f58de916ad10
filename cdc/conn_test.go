package cdc

import (
	"errors"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// asRole makes the configuration connect as a fresh role with the given attributes.
func asRole(t *testing.T, db *testenv.Database, cfg *Config, attributes string) (role string) {
	t.Helper()
	role = db.Slot(t)
	db.Exec(t, "CREATE ROLE "+role+" LOGIN PASSWORD 'hunter2secret' "+attributes)
	t.Cleanup(func() { db.Exec(t, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	u, err := url.Parse(db.DSN)
	require.NoError(t, err)
	u.User = url.UserPassword(role, "hunter2secret")
	cfg.ConnString = Secret(u.String())
	return role
}

func TestDial_PinsSettings(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		role := asRole(t, db, cfg, "REPLICATION")
		db.Exec(t, `ALTER ROLE `+role+` SET DateStyle = 'SQL, DMY'; ALTER ROLE `+role+` SET IntervalStyle = iso_8601;
			ALTER ROLE `+role+` SET extra_float_digits = -5; ALTER ROLE `+role+` SET TimeZone = 'Asia/Tokyo';
			ALTER ROLE `+role+` SET bytea_output = escape; ALTER ROLE `+role+` SET statement_timeout = '1min';
			ALTER ROLE `+role+` SET default_transaction_read_only = on; ALTER ROLE `+role+` SET search_path = evil;
			ALTER ROLE `+role+` SET wal_sender_timeout = 0`)
		if major >= 17 {
			db.Exec(t, "ALTER ROLE "+role+" SET transaction_timeout = '1min'")
		}
		cfg.ConnString += "&datestyle=german&application_name=mine"
		s := dial(t, cfg)

		const values = `SELECT concat_ws('|', ARRAY['\x00ff'::bytea::text, timestamptz '2026-01-02 03:04:05+00'::text,
			interval '1 day 2 hours'::text, (0.1::float8 + 0.2::float8)::text, current_setting('application_name'),
			current_setting('search_path')]::text)`
		want := `{"\\x00ff","2026-01-02 03:04:05+00","1 day 02:00:00",0.30000000000000004,mine,"pg_catalog, pg_temp"}`
		got, err := s.replValue(t.Context(), values)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.NoError(t, s.SQL.QueryRow(t.Context(), values).Scan(&got))
		require.Equal(t, want, got)
		pinned := map[string]string{"statement_timeout": "0", "wal_sender_timeout": "1min"}
		if major >= 17 {
			pinned["transaction_timeout"] = "0"
		}
		for setting, want := range pinned {
			got, err := s.replValue(t.Context(), "SHOW "+setting)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		require.Equal(t, defaultWALSenderTimeout, s.WALSenderTimeout)
		require.Equal(t, major, s.Version/10000)
		require.EqualValues(t, 1, s.Timeline)

		cfg.WALSenderTimeout = 1500 * time.Millisecond
		s = dial(t, cfg)
		require.Equal(t, cfg.WALSenderTimeout, s.WALSenderTimeout)
		require.Equal(t, 500*time.Millisecond, s.StatusInterval())
	})
}

func TestDial_Refused(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		good := *cfg

		asRole(t, db, cfg, "NOREPLICATION")
		_, err := Dial(t.Context(), cfg)
		fatal(t, err, "role", "replication", "ALTER ROLE ... REPLICATION", "rds_replication")
		require.NotContains(t, err.Error(), "hunter2secret")

		*cfg = good
		cfg.ConnString = Secret(db.Server().DSN("nowhere"))
		_, err = Dial(t.Context(), cfg)
		fatal(t, err, "database", "does not exist", "nowhere")
	})
}

func TestDial_RetriesWrongPassword(t *testing.T) {
	t.Parallel()
	major := testenv.Majors()[0]
	server := testenv.StartPostgres(t, major, testenv.Config{
		HBA: []string{"local all postgres trust", "host all all 127.0.0.1/32 scram-sha-256"},
	})
	db := server.Database(t)
	cfg := newConfig(t, db)
	asRole(t, db, cfg, "REPLICATION")
	dial(t, cfg)

	u, err := url.Parse(string(cfg.ConnString))
	require.NoError(t, err)
	u.User = url.UserPassword(u.User.Username(), "wrong7password")
	cfg.ConnString = Secret(u.String())
	_, err = Dial(t.Context(), cfg)
	require.ErrorContains(t, err, "password authentication failed")
	require.NotContains(t, err.Error(), "wrong7password")
	require.False(t, Fatal(err))
}

// TestDial_Pooler answers like PgBouncer in its default configuration.
func TestDial_Pooler(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			done <- err
			return
		}
		backend := pgproto3.NewBackend(conn, conn)
		if _, err := backend.ReceiveStartupMessage(); err != nil {
			done <- err
			return
		}
		backend.Send(&pgproto3.ErrorResponse{
			Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: replication",
		})
		done <- errors.Join(backend.Flush(), conn.Close(), listener.Close())
	}()
	cfg := validConfig()
	cfg.ConnString = Secret("postgres://u:hunter2secret@" + listener.Addr().String() + "/db?sslmode=disable")
	_, err = Dial(t.Context(), cfg)
	fatal(t, err, "pooler", "connect directly to PostgreSQL")
	require.NotContains(t, err.Error(), "hunter2secret")
	require.NoError(t, <-done)
}

func TestParseConnString_ShowsNoSecret(t *testing.T) {
	t.Parallel()
	for _, s := range []Secret{
		"postgres://u:secret@h:port/db",
		"postgres://u:secret@h/db?connect_timeout=secret",
		"postgres://u:se%zzcret@h/db?password=secret",
		"host=h password = secret port=x",
		"host=h password=secret secret",
		`host=h password='secret`,
		"host=h password=secret target_session_attrs=secret",
		"host=h password=secret sslmode=secret",
		"host=h password=secret sslmode=verify-full sslrootcert=/secret",
	} {
		_, err := parseConnString(s)
		require.Error(t, err, string(s))
		fatal(t, err, "connection string")
		require.NotContains(t, err.Error(), "secret")
		cfg := Config{ConnString: s}
		require.NotContains(t, cfg.Validate().Error(), "secret")
	}
}

func TestPreflight(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		_, err := dial(t, cfg).Preflight(t.Context())
		require.NoError(t, err)

		role := asRole(t, db, cfg, "REPLICATION")
		_, err = dial(t, cfg).Preflight(t.Context())
		fatal(t, err, "permission denied for schema walrelay")
		db.Exec(t, "GRANT USAGE ON SCHEMA walrelay TO "+role+";"+
			"GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA walrelay TO "+role)
		_, err = dial(t, cfg).Preflight(t.Context())
		fatal(t, err, role, "UPDATE is missing", "GRANT UPDATE ON walrelay.streams TO")
		db.Exec(t, "GRANT ALL ON ALL TABLES IN SCHEMA walrelay TO "+role)
		_, err = dial(t, cfg).Preflight(t.Context())
		require.NoError(t, err)

		db.Exec(t, "DROP SCHEMA walrelay CASCADE")
		_, err = dial(t, cfg).Preflight(t.Context())
		fatal(t, err, "walrelay.streams", "does not exist", "walrelay migrate")
		_, err = dial(t, cfg).Register(t.Context())
		fatal(t, err, "walrelay migrate")
	})
}

func TestPreflight_Settings(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, testenv.Majors()[0], testenv.Config{
		Settings: map[string]string{"wal_level": "replica"},
	})
	db := server.Database(t)
	cfg := newConfig(t, db)
	_, err := dial(t, cfg).Preflight(t.Context())
	fatal(t, err, "wal_level = replica", "set wal_level = logical")
}

func TestNamesStandby(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]bool{
		"": false, "*": true, "a, walrelay": true, `ANY 1 ("WalRelay")`: true, "walrelay2": false, "FIRST 1 (a,b)": false,
	} {
		require.Equal(t, want, namesStandby(setting, "walrelay"), setting)
	}
}

func TestKnownBugs(t *testing.T) {
	t.Parallel()
	require.Len(t, knownBugs(150007), 3)
	require.Len(t, knownBugs(150009), 2)
	require.Contains(t, knownBugs(150009)[0], "fixed in 15.10")
	require.Len(t, knownBugs(170004), 1)
	require.Len(t, knownBugs(170005), 1)
	require.Contains(t, knownBugs(170005)[0], "fixed in 17.6")
	require.Empty(t, knownBugs(180000))
	require.Empty(t, knownBugs(140019))
}
