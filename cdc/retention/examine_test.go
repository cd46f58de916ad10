package retention

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/testenv"
)

// examined is what a role finds about the table, by check; as nobody's in particular if role is empty.
func (f *fixture) examined(role string) map[string]cdc.Finding {
	f.t.Helper()
	conn, err := f.Connect(f.t.Context(), f.session)
	require.NoError(f.t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	if role != "" {
		_, err = conn.Exec(f.t.Context(), "SET ROLE "+role)
		require.NoError(f.t, err)
	}
	found := map[string]cdc.Finding{}
	for _, finding := range Examine(f.t.Context(), conn, &f.cfg) {
		require.NotContains(f.t, found, finding.Check)
		require.Equal(f.t, `table "public"."events"`, finding.Object)
		require.Equal(f.t, finding.Level == cdc.LevelOK, finding.Fix == "")
		found[finding.Check] = finding
	}
	return found
}

// What retention lacks is said before a row is due.
func TestExamine_Rights(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major, plain)
		role := f.db.Name + "_role"
		f.db.Exec(t, "CREATE ROLE "+role+"; GRANT SELECT, DELETE ON public.events TO "+role)
		t.Cleanup(func() {
			_, err := f.db.Conn.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
			require.NoError(t, err)
		})
		require.Contains(t, f.examined("")["retention"].Found, "no index begins with")
		f.db.Exec(t, "CREATE INDEX ON public.events (at)")
		require.Contains(t, f.examined("")["retention"].Found, "by an index that begins with")
		finding := f.examined(role)["retention"]
		require.Equal(t, cdc.LevelWarning, finding.Level)
		f.db.Exec(t, finding.Fix)
		require.Equal(t, cdc.LevelOK, f.examined(role)["retention"].Level)

		f.cfg.Limit = 0
		require.Empty(t, f.examined(role), "nothing is to be deleted")
	})
}

// Partitions that are about to run out are named while there is time.
func TestExamine_Partitions(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		for _, kind := range []string{"timestamptz", "date"} {
			t.Run(kind, func(t *testing.T) {
				testenv.StayWithin(t, time.Hour, time.Minute)
				f := newFixture(t, major, timed(kind))
				f.db.Exec(t, `CREATE TABLE public.events_next PARTITION OF public.events
					FOR VALUES FROM ('2099-01-01') TO ('2100-01-01')`)
				check := func(level cdc.Level, part string) {
					t.Helper()
					finding := f.examined("")["partitions"]
					require.Equal(t, level, finding.Level, finding.Found)
					require.Contains(t, finding.Found, part)
				}
				check(cdc.LevelFault, "no partition for the present")
				_, err := f.make(Ahead{Every: Daily})
				require.NoError(t, err)
				check(cdc.LevelWarning, "its partitions end at "+time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly))
				_, err = f.make(Ahead{Every: Daily, For: 48 * time.Hour})
				require.NoError(t, err)
				check(cdc.LevelOK, "there are partitions up to "+time.Now().UTC().AddDate(0, 0, 3).Format(time.DateOnly))
				f.db.Exec(t, "CREATE TABLE public.spare PARTITION OF public.events DEFAULT")
				check(cdc.LevelOK, "there are partitions up to")
				f.db.Exec(t, "INSERT INTO public.events (at) VALUES (now() + interval '30 days')")
				check(cdc.LevelWarning, "its default partition public.spare has rows")
			})
		}
	})
}

// Partitions by something else than a time have no end.
func TestExamine_OtherPartitions(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 18, `CREATE TABLE public.events (id bigint, at timestamptz) PARTITION BY RANGE (id)`)
	require.NotContains(t, f.examined(""), "partitions")
}
