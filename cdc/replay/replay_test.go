package replay

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/checkpoint"
)

func forMajors(t *testing.T, test func(t *testing.T, major int)) {
	t.Helper()
	t.Parallel()
	for _, major := range []int{14, 18} {
		t.Run(fmt.Sprintf("postgres-%d", major), func(t *testing.T) {
			t.Parallel()
			test(t, major)
		})
	}
}

// numbers are the ids from first to last.
func numbers(first, last int) (ids []string) {
	for n := first; n <= last; n++ {
		ids = append(ids, strconv.Itoa(n))
	}
	return ids
}

// Ids, a range and a table each choose rows, which come in the order of their times.
func TestRun_Selections(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major)
		f.cfg.Window.Events = 1 // so that they are acknowledged in the order of publishing
		f.fill(5)
		f.db.Exec(t, `INSERT INTO public.audit VALUES ('b', 'k', 'p', '2026-01-01 00:02'),
			('a', 'k', 'p', '2026-01-01 00:03'), ('2', 'k', 'p', NULL)`)
		at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
		for name, test := range map[string]struct {
			selection Selection
			tables    []string
			want      []string
		}{
			"all":            {Selection{All: true}, nil, []string{"1", "2", "3", "4", "5", "2", "b", "a"}},
			"since":          {Selection{Since: at(3)}, nil, []string{"3", "4", "5", "a"}},
			"until":          {Selection{Until: at(3)}, nil, []string{"1", "2", "b"}},
			"range":          {Selection{Since: at(2), Until: at(3)}, nil, []string{"2", "b"}},
			"ids":            {Selection{IDs: []string{"2", "4"}}, nil, []string{"2", "4", "2"}},
			"one table":      {Selection{All: true}, []string{"public.audit"}, []string{"2", "b", "a"}},
			"in order of id": {Selection{All: true, TimeColumn: "none"}, []string{"public.audit"}, []string{"2", "a", "b"}},
		} {
			b := &brokers{}
			r := f.begin(name, test.selection, test.tables...)
			require.NoError(t, f.run(t.Context(), r, b), name)
			require.Equal(t, test.want, b.acked, name)
			r = f.find(name)
			require.Equal(t, Done, r.State)
			require.EqualValues(t, len(test.want), r.Published)
		}
	})
}

// What is published again has the time of its row, unless that lies ahead.
func TestRun_Timestamps(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 18)
	f.db.Exec(t, `INSERT INTO public.events VALUES (1, 'k', 'p', '2026-01-01'), (2, 'k', 'p', '2199-01-01'),
		(3, 'k', 'p', NULL)`)
	b := &brokers{}
	require.NoError(t, f.run(t.Context(), f.begin("all", Selection{All: true}), b))
	require.Equal(t, []string{"", "2026-01-01 00:00:00+00", ""}, b.stamps, "rows without a time come first")
}

// One that was interrupted goes on with the last row that was acknowledged without a gap; one that was killed, with the
// one that was written down before.
func TestRun_Resumed(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major)
		const rows = 1000
		f.fill(rows)
		f.db.Exec(t, "INSERT INTO public.audit VALUES ('last', 'k', 'p', '2026-01-01')")
		interrupted := func(r *Record, at int, also func(*Config)) *brokers {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var config *Config
			b := &brokers{reached: func(n int) {
				if n == at {
					cancel()
					also(config)
				}
			}}
			require.ErrorIs(t, f.run(ctx, r, b, func(c *Config) { config = c }), context.Canceled)
			return b
		}
		// at is the number of the row that the ledger has: rows are a minute apart.
		at := func() int {
			t.Helper()
			moment, err := time.Parse("2006-01-02 15:04:05-07", f.find("long").AtValue)
			require.NoError(t, err)
			return int(moment.Sub(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).Minutes())
		}
		first := interrupted(f.begin("long", Selection{All: true}), 300, func(*Config) {})
		r := f.find("long")
		require.Equal(t, []any{Running, "public.events"}, []any{r.State, r.AtTable})
		reached := at()
		require.EqualValues(t, reached, r.Published)
		require.InDelta(t, 300, reached, float64(f.cfg.Window.Events))
		require.Subset(t, first.acked, numbers(1, reached))

		from := reached
		second := interrupted(f.find("long"), 300, func(c *Config) {
			reached = at() // further than before if that took recordEvery
			_ = c.Ledger.Close(context.Background())
		})
		require.Equal(t, reached, at(), "what was reached was not written down any more")
		require.Subset(t, second.acked, numbers(from, from+200))

		third := &brokers{}
		require.NoError(t, f.run(t.Context(), f.find("long"), third))
		require.ElementsMatch(t, append(numbers(reached, rows), "last"), third.acked, "the last row again, and none before")
		require.Equal(t, Done, f.find("long").State)
	})
}

// A run of the sink that ends costs repetitions and no row.
func TestRun_SinkFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 18)
	f.fill(100)
	b := &brokers{failing: 50}
	require.NoError(t, f.run(t.Context(), f.begin("all", Selection{All: true}), b))
	require.Equal(t, []error{errRun}, b.troubles)
	seen := slices.Clone(b.acked)
	slices.Sort(seen)
	require.ElementsMatch(t, numbers(1, 100), slices.Compact(seen))
}

// A refused row is a dead letter, once, however often and wherever the replay is interrupted.
func TestRun_Refused(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major)
		f.fill(100)
		refuse := map[string]bool{"20": true, "40": true, "100": true}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b := &brokers{refuse: refuse, reached: func(n int) {
			if n == 60 {
				cancel()
			}
		}}
		require.ErrorIs(t, f.run(ctx, f.begin("some", Selection{All: true}), b), context.Canceled)
		want := [][3]string{{"20", "refused", "too large"}, {"40", "refused", "too large"}}
		require.ElementsMatch(t, want, f.letters())

		f.db.Exec(t, "UPDATE walrelay.replays SET at_table = NULL, at_value = NULL") // as if it had been killed
		b = &brokers{refuse: refuse}
		require.NoError(t, f.run(t.Context(), f.find("some"), b))
		want = append(want, [3]string{"100", "refused", "too large"})
		require.ElementsMatch(t, want, f.letters())
		for i, id := range []string{"20", "40", "100"} {
			require.Equal(t, checkpoint.RowPosition("public.events", id), b.told[i].Position)
		}

		// The stream's policy is to drop such events.
		require.NoError(t, f.run(t.Context(), f.begin("skipping", Selection{IDs: []string{"20"}}), &brokers{refuse: refuse},
			func(c *Config) { c.Skip = true }))
		require.Contains(t, f.letters(), [3]string{"20", "skipped", "too large"})
	})
}

// Many refused rows are written down before their number becomes a burden.
func TestRun_ManyRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 18)
	f.fill(2*recordMost + 10)
	refuse := map[string]bool{}
	for _, id := range numbers(1, 2*recordMost+10) {
		refuse[id] = true
	}
	b := &brokers{refuse: refuse}
	most := 0
	require.NoError(t, f.run(t.Context(), f.begin("all", Selection{All: true}), b, func(c *Config) {
		tell := c.Refused
		c.Refused = func(p checkpoint.Poison) {
			tell(p)
			if len(b.told)%recordMost == recordMost/2 {
				most = max(most, len(b.told)-len(f.letters()))
			}
		}
	}))
	require.Len(t, f.letters(), 2*recordMost+10)
	require.Less(t, most, recordMost+f.cfg.Window.Events)
}

// The limit holds from the first row on, but for a tenth of a second's worth.
func TestRun_Rate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 18)
	f.fill(40)
	b := &brokers{}
	require.NoError(t, f.run(t.Context(), f.begin("slow", Selection{All: true}), b, func(c *Config) { c.Rate = 100 }))
	require.GreaterOrEqual(t, b.last.Sub(b.first), 290*time.Millisecond, "the first ten come at once")
}

// A snapshot that another session has exported is what is read.
func TestRun_Snapshot(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 18)
	f.fill(3)
	exporter, err := f.db.Conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = exporter.Rollback(context.Background()) }()
	var snapshot string
	require.NoError(t, exporter.QueryRow(t.Context(), "SELECT pg_export_snapshot()").Scan(&snapshot))
	other, err := cdc.Connect(t.Context(), f.cfg)
	require.NoError(t, err)
	defer func() { _ = other.Close(context.Background()) }()
	_, err = other.Exec(t.Context(), "INSERT INTO public.events VALUES (4, 'k', 'p', now())")
	require.NoError(t, err)
	b := &brokers{}
	require.NoError(t, f.run(t.Context(), f.begin("backfill", Selection{All: true}), b, func(c *Config) {
		c.Snapshot = snapshot
	}))
	require.ElementsMatch(t, numbers(1, 3), b.acked)
}

// A replay ends a gap that was made on purpose when it holds all of it.
func TestRun_ClosesGap(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 18)
	f.fill(3)
	gap := func() (there bool) {
		require.NoError(t, f.db.QueryRow(t, "SELECT left_out IS NOT NULL FROM walrelay.streams").Scan(&there))
		return there
	}
	f.db.Exec(t, `UPDATE walrelay.streams SET left_out = '{"how": "advanced", "since": "2026-01-01T00:01:30Z",
		"until": "2026-01-01T00:02:30Z"}'`)
	since := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	for i, open := range []struct {
		selection Selection
		tables    []string
	}{
		{Selection{IDs: []string{"2"}}, nil},
		{Selection{Since: since}, []string{"public.events"}},
		{Selection{Until: since}, nil},
	} {
		require.NoError(t, f.run(t.Context(), f.begin(fmt.Sprint(i), open.selection, open.tables...), &brokers{}))
		require.True(t, gap(), i)
	}
	require.NoError(t, f.run(t.Context(), f.begin("gap", Selection{Since: since}), &brokers{}))
	require.False(t, gap())
}

// What the configuration lacks is said, with what to do.
func TestRun_Refuses(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 18)
	f.fill(1)
	r := f.begin("gone", Selection{All: true})
	r.AtTable, r.AtValue = "public.other", "1"
	require.ErrorContains(t, f.run(t.Context(), r, &brokers{}), "came to table public.other, which is not configured")
	r = f.begin("column", Selection{Since: time.Now(), TimeColumn: "none"})
	require.ErrorContains(t, f.run(t.Context(), r, &brokers{}), `has no column "none"`)
	f.cfg.Mappings[0].ID = "missing"
	r = f.begin("id", Selection{All: true})
	require.ErrorContains(t, f.run(t.Context(), r, &brokers{}), `has no column "missing"`)
}
