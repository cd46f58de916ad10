package replay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/cdc"
)

func TestLedger(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major)
		l, ctx := f.ledger(), t.Context()
		require.Nil(t, f.find("one"))
		selection := Selection{
			Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), TimeColumn: "at",
			TimeColumns: map[string]string{"public.audit": "seen"},
		}
		r := &Record{Name: "one", Selection: selection, Tables: []string{"public.audit"}}
		require.NoError(t, l.Begin(ctx, r))
		found := f.find("one")
		require.Equal(t, []any{selection, r.Tables, Planned}, []any{found.Selection, found.Tables, found.State})
		require.Equal(t, []any{"postgres", "", int64(0)}, []any{found.RequestedBy, found.AtTable, found.Published})

		err := l.Begin(ctx, r)
		require.True(t, cdc.Fatal(err))
		require.ErrorContains(t, err, "walrelay replay resume one")
		found.State, found.AtTable, found.AtValue, found.Published, found.Refused = Running, "public.audit", "7", 5, 2
		require.NoError(t, l.Reach(ctx, found))
		reached := f.find("one")
		require.Equal(t, []any{Running, "public.audit", "7", int64(5), int64(2)},
			[]any{reached.State, reached.AtTable, reached.AtValue, reached.Published, reached.Refused})
		require.NoError(t, l.Begin(ctx, &Record{Name: "two", Selection: Selection{All: true}}))
		list, err := l.List(ctx)
		require.NoError(t, err)
		require.Equal(t, []string{"two", "one"}, []string{list[0].Name, list[1].Name}, "the latest first")
		f.db.Exec(t, "DELETE FROM walrelay.replays")
		require.ErrorIs(t, l.Reach(ctx, found), errReplayGone)
	})
}

// Of instances that start together, one that comes late does not plan again what another is through with. A slot
// that is created anew has its own backfill.
func TestLedger_Plan(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 18)
	ledger, slot := f.ledger(), f.db.Slot(t)
	plan := func() *Record {
		t.Helper()
		require.NoError(t, ledger.Plan(t.Context(), &Record{Name: "backfill", Selection: Selection{All: true}}, slot))
		return f.find("backfill")
	}
	record := plan()
	require.Equal(t, Planned, record.State)
	f.db.Exec(t, "SELECT pg_create_logical_replication_slot('"+slot+"', 'pgoutput')")
	record.State, record.AtTable, record.AtValue, record.Published = Done, "events", "7", 7
	require.NoError(t, ledger.Reach(t.Context(), record))
	done := f.find("backfill")
	require.Equal(t, done, plan())

	f.db.Exec(t, "SELECT pg_drop_replication_slot('"+slot+"')")
	again := plan()
	require.Equal(t, []any{Planned, "", int64(0)}, []any{again.State, again.AtValue, again.Published})
	require.True(t, again.Started.After(done.Started))
	require.ErrorContains(t, ledger.Begin(t.Context(), &Record{Name: "backfill"}), "was begun before")
}

// One process carries a replay out, until its connection ends.
func TestLedger_Hold(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major)
		first, second := f.ledger(), f.ledger()
		hold := func(l *Ledger, name string) bool {
			t.Helper()
			held, err := l.Hold(t.Context(), name)
			require.NoError(t, err)
			return held
		}
		require.True(t, hold(first, "one"))
		require.False(t, hold(second, "one"))
		require.True(t, hold(second, "two"))
		f.cfg.Stream = "others"
		require.True(t, hold(f.ledger(), "one"), "another stream's")
		require.NoError(t, first.Close(context.Background()))
		require.Eventually(t, func() bool { return hold(second, "one") }, 30*time.Second, 20*time.Millisecond)
	})
}

// A look says what would be published, table by table, and which ids nobody has.
func TestLook(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major)
		f.fill(200)
		f.db.Exec(t, "INSERT INTO public.audit VALUES ('x', 'k', 'p', now())")
		f.db.Exec(t, "ANALYZE public.events, public.audit")
		look, err := Look(t.Context(), f.cfg, &Record{Selection: Selection{All: true, TimeColumn: "at"}})
		require.NoError(t, err)
		require.Equal(t, []string{"public.events", "public.audit"}, []string{look.Tables[0].Name, look.Tables[1].Name})
		require.EqualValues(t, []int64{200, 1}, []int64{look.Tables[0].Rows, look.Tables[1].Rows})
		require.Equal(t, []string{"1", "x"}, []string{string(look.Tables[0].First.ID), string(look.Tables[1].First.ID)})
		require.Empty(t, look.Missing)

		ids := &Record{Selection: Selection{IDs: []string{"7", "201", `a"\`}}, Tables: []string{"public.audit"}}
		look, err = Look(t.Context(), f.cfg, ids)
		require.NoError(t, err)
		require.Equal(t, ids.Selection.IDs, look.Missing)
		require.Nil(t, look.Tables[0].First)
		ids.Tables = []string{"public.events"}
		_, err = Look(t.Context(), f.cfg, ids)
		require.ErrorContains(t, err, "an id cannot be one of the id column's type")
		ids.Selection.IDs = ids.Selection.IDs[:2]
		look, err = Look(t.Context(), f.cfg, ids)
		require.NoError(t, err)
		require.Equal(t, []string{"201"}, look.Missing)
		require.Equal(t, "7", string(look.Tables[0].First.ID))
	})
}

func TestSelection_Validate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for rule, s := range map[string]Selection{
		"say which rows":            {},
		"exclude each other":        {All: true, IDs: []string{"1"}},
		"needs a time column":       {Since: now},
		"ends before it begins":     {Since: now, Until: now, TimeColumn: "at"},
		"all exclude each other":    {All: true, Since: now, TimeColumn: "at"},
		"ids, a time range and all": {IDs: []string{"1"}, Until: now, TimeColumn: "at"},
	} {
		require.ErrorContains(t, s.Validate(), rule)
	}
	require.NoError(t, (&Selection{Until: now, TimeColumn: "at"}).Validate())
}
