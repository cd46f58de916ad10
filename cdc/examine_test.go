package cdc

import (
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// examine runs all checks, and requires of each finding that it is whole.
func examine(t *testing.T, cfg *Config) []Finding {
	t.Helper()
	calls := 0
	findings := Examine(t.Context(), cfg, func(Sample) { calls++ })
	require.Equal(t, 1, calls)
	requireWhole(t, findings)
	return findings
}

func requireWhole(t *testing.T, findings []Finding) {
	t.Helper()
	for _, f := range findings {
		require.Regexp(t, `^[a-z]+(-[a-z]+)*$`, f.Check)
		require.NotEmpty(t, f.Object, f.Check)
		require.NotEmpty(t, f.Found, f.Check)
		require.Equal(t, f.Level == LevelOK, f.Why == "", "%+v", f)
		require.Equal(t, f.Level == LevelOK, f.Fix == "", "%+v", f)
		require.NotContains(t, f.Found+f.Why+f.Fix, "\n")
		require.NotContains(t, f.Found+f.Why+f.Fix, "hunter2")
	}
}

// notOK lists the checks that found something, each with its level.
func notOK(findings []Finding) []string {
	list := []string{}
	for _, f := range findings {
		if f.Level != LevelOK {
			list = append(list, f.Check+" "+string(f.Level))
		}
	}
	return list
}

// found returns the first finding of a check that is not ok.
func found(t *testing.T, findings []Finding, check string) Finding {
	t.Helper()
	i := slices.IndexFunc(findings, func(f Finding) bool { return f.Check == check && f.Level != LevelOK })
	require.GreaterOrEqual(t, i, 0, "%s found nothing: %+v", check, findings)
	return findings[i]
}

// absent requires that a check found nothing wrong, or nothing at all.
func absent(t *testing.T, findings []Finding, check string) {
	t.Helper()
	require.False(t, finds(findings, check), "%s found something: %+v", check, findings)
}

func finds(findings []Finding, check string) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Check == check && f.Level != LevelOK })
}

// carryOut executes a fix that is SQL.
func carryOut(t *testing.T, db *testenv.Database, fix string) {
	t.Helper()
	sql, _, _ := strings.Cut(fix, "; then")
	for statement := range strings.SplitSeq(sql, "; ") {
		db.Exec(t, statement)
	}
}

// mended requires the finding, carries its fix out, and requires that it is gone: at once, or when the server has
// reloaded its settings.
func mended(t *testing.T, db *testenv.Database, cfg *Config, check string, level Level, parts ...string) {
	t.Helper()
	f := found(t, examine(t, cfg), check)
	require.Equal(t, level, f.Level, "%+v", f)
	for _, part := range parts {
		require.Contains(t, f.Object+": "+f.Found+" "+f.Fix, part)
	}
	carryOut(t, db, f.Fix)
	require.Eventually(t, func() bool { return !finds(examine(t, cfg), check) }, time.Minute, 10*time.Millisecond, check)
}

// The test servers have every default, and one of them is worth a warning.
func TestExamine_Healthy(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		before := inventory(t, db)
		require.Equal(t, []string{"slot-wal-limit warning"}, notOK(examine(t, cfg)))
		require.Equal(t, before, inventory(t, db))

		register(t, cfg)
		before = inventory(t, db)
		require.Equal(t, []string{"slot warning", "slot-wal-limit warning"}, notOK(examine(t, cfg)))
		require.Equal(t, before, inventory(t, db))
	})
}

// inventory is what an examination must leave as it is.
func inventory(t *testing.T, db *testenv.Database) (all string) {
	t.Helper()
	require.NoError(t, db.QueryRow(t, `SELECT concat_ws('|', (SELECT count(*) FROM pg_class),
		(SELECT count(*) FROM pg_publication), (SELECT string_agg(s::text, ',') FROM walrelay.streams s),
		(SELECT string_agg(slot_name || confirmed_flush_lsn, ',') FROM pg_replication_slots
			WHERE database = current_database()))`).Scan(&all))
	return all
}

func TestExamine_BeforeMigration(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db := testenv.Postgres(t, major).Database(t)
		cfg := newConfig(t, db)
		findings := examine(t, cfg)
		require.Equal(t, []string{"schema fault", "table fault", "slot-wal-limit warning"}, notOK(findings))
		require.Equal(t, "walrelay migrate up, as the owner of the database", found(t, findings, "schema").Fix)

		migrate(t, db.DSN)
		db.Exec(t, outbox)
		require.Equal(t, []string{"slot-wal-limit warning"}, notOK(examine(t, cfg)))
	})
}

func TestExamine_Unreachable(t *testing.T) {
	t.Parallel()
	cfg := validConfig()
	cfg.ConnString = "postgres://u:hunter2@127.0.0.1:1/db?sslmode=disable"
	findings := examine(t, cfg)
	require.Equal(t, []string{"connection fault"}, notOK(findings))
	require.Contains(t, findings[0].Found, "connection refused")
}

func TestExamine_RefusedConnection(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, 18, testenv.Config{
		HBA: []string{"local all postgres trust", "host all postgres 127.0.0.1/32 trust"},
	})
	db, cfg := streamOn(t, server)
	role := asRole(t, db, cfg, "REPLICATION")

	f := found(t, examine(t, cfg), "connection")
	line := `host "` + db.Name + `" "` + role + `" 127.0.0.1/32 scram-sha-256`
	require.Contains(t, f.Fix, line)
	hba, err := os.OpenFile(server.Dir+"/pg_hba.conf", os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = hba.WriteString(line + "\n")
	require.NoError(t, err)
	require.NoError(t, hba.Close())
	db.Exec(t, "SELECT pg_reload_conf()")
	require.Eventually(t, func() bool {
		return !slices.Contains(notOK(examine(t, cfg)), "connection fault")
	}, time.Minute, 50*time.Millisecond)

	u, err := url.Parse(string(cfg.ConnString))
	require.NoError(t, err)
	u.User = url.UserPassword(role, "hunter2wrong")
	cfg.ConnString = Secret(u.String())
	require.Contains(t, found(t, examine(t, cfg), "connection").Fix, "ALTER ROLE \""+role+"\" PASSWORD")

	u.Path = "/nowhere"
	u.User = url.UserPassword("postgres", "postgres")
	cfg.ConnString = Secret(u.String())
	require.Contains(t, found(t, examine(t, cfg), "connection").Fix, `CREATE DATABASE "nowhere"`)
}

func TestExamine_Standby(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, 18, testenv.Config{})
	db, cfg := streamOn(t, server)
	standby := server.Standby(t, testenv.Config{Settings: map[string]string{"hot_standby_feedback": "off"}})

	primary := cfg.ConnString
	findings := examine(t, cfg)
	f := found(t, findings, "slot-failover")
	require.Contains(t, f.Found, "1 standbys")
	require.Contains(t, f.Fix, "WALRELAY_SLOT_FAILOVER=true")

	cfg.Failover = true
	findings = examine(t, cfg)
	absent(t, findings, "slot-failover")
	f = found(t, findings, "hot-standby-feedback")
	sql, ok := strings.CutPrefix(f.Fix, "on the standby: ")
	require.True(t, ok)
	for statement := range strings.SplitSeq(sql, "; ") {
		standby.Exec(t, statement)
	}
	require.Eventually(t, func() bool {
		return !slices.Contains(notOK(examine(t, cfg)), "hot-standby-feedback warning")
	}, time.Minute, 50*time.Millisecond)
	mended(t, db, cfg, "synchronized-standby-slots", LevelWarning, "ALTER SYSTEM SET synchronized_standby_slots")

	cfg.ConnString = Secret(standby.DSN(db.Name))
	require.Eventually(t, func() bool {
		var there bool
		standby.QueryRow(t, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", []any{db.Name}, &there)
		return there
	}, time.Minute, 50*time.Millisecond)
	findings = examine(t, cfg)
	require.Contains(t, found(t, findings, "connection").Found, "in recovery")
	require.Greater(t, len(findings), 10) // the rest was looked at all the same

	cfg.ConnString = primary
	standby.Stop(t, testenv.Fast)
	require.Eventually(t, func() bool { // its WAL sender has noticed
		return finds(examine(t, cfg), "synchronized-standby-slots")
	}, time.Minute, 50*time.Millisecond)
	mended(t, db, cfg, "synchronized-standby-slots", LevelFault, "no standby streams through")
}
