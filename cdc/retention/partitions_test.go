package retention

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// daily is partitioned by days: three that are over, today and tomorrow.
const daily = `CREATE TABLE public.events (id bigint, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (id, at))
		PARTITION BY RANGE (at);
	DO $$ BEGIN
		FOR d IN -4..1 LOOP
			CONTINUE WHEN d = -1; -- it may be over for less than the limit
			EXECUTE format('CREATE TABLE public.events_%s PARTITION OF public.events FOR VALUES FROM (%L) TO (%L)',
				d + 4, current_date + d, current_date + d + 1);
		END LOOP;
	END $$;
	INSERT INTO public.events SELECT n, current_date - 4 + (n - 1) / 10 * interval '1 day'
		FROM generate_series(1, 30) AS n;
	INSERT INTO public.events VALUES (31)`

// partitions are those that are attached, and all tables of their names.
func (f *fixture) partitions() (attached, tables int) {
	f.t.Helper()
	require.NoError(f.t, f.db.QueryRow(f.t, `SELECT (SELECT count(*) FROM pg_inherits
		WHERE inhparent = 'public.events'::regclass AND NOT inhdetachpending), count(*)
		FROM pg_class WHERE relname ~ '^events_\d$'`).Scan(&attached, &tables))
	return attached, tables
}

// drops waits until that many partitions are left.
func (f *fixture) drops(left int) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		attached, tables := f.partitions()
		return attached == left && tables == left
	}, wait, tick)
	f.goesRound()
	attached, _ := f.partitions()
	require.Equal(f.t, left, attached)
}

func TestPartitions_Dropped(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major, daily)
		f.db.Exec(t, `INSERT INTO walrelay.dead_letters (stream, position, event_id, table_name, topic, size, reason, action)
			VALUES ('orders', '1', '11', $1, '', 1, '', 'skipped'), ('orders', '2', '', $1, '', 1, '', 'skipped')`,
			f.cfg.Tables[0].Name())
		f.run()
		f.stays(3, f.ids()...)
		f.coversAll()
		f.drops(3) // the second has a dead letter
		f.db.Exec(t, `DELETE FROM walrelay.dead_letters`)
		f.drops(2)
		require.EqualValues(t, 3, f.Stats().Partitions)
		require.Zero(t, f.Stats().Rows)
	})
}

// reads begins a transaction that holds up whoever detaches a partition.
func (f *fixture) reads() pgx.Tx {
	f.t.Helper()
	reader, err := f.db.Conn.Begin(f.t.Context())
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = reader.Rollback(context.Background()) })
	_, err = reader.Exec(f.t.Context(), "SELECT FROM public.events")
	require.NoError(f.t, err)
	return reader
}

// A detachment that a crash or a long transaction interrupted is brought to its end.
func TestPartitions_Interrupted(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major, daily)
		reader := f.reads()
		f.coversAll()
		f.run()
		f.fails("detach partition", "lock timeout")
		var pending bool
		require.NoError(t, f.db.QueryRow(t, "SELECT bool_or(inhdetachpending) FROM pg_inherits").Scan(&pending))
		require.True(t, pending)
		f.db.Exec(t, "INSERT INTO public.events VALUES (100)") // writers go on
		require.NoError(t, reader.Rollback(t.Context()))
		f.drops(2)
	})
}

// What is dropped is only what was detached by retention, and detached is not yet dropped.
func TestPartitions_DetachedIsNotConfirmed(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major, daily)
		f.db.Exec(t, `ALTER TABLE public.events DETACH PARTITION public.events_0;
			ALTER TABLE public.events_0 RENAME TO aside`)
		f.db.Exec(t, `ALTER TABLE public.events DETACH PARTITION public.events_1`)
		f.db.Exec(t, `UPDATE walrelay.streams SET detached = jsonb_build_array(jsonb_build_object(
			'oid', 'public.events_1'::regclass::oid::int8, 'name', 'public.events_1', 'schema', 'public', 'table', 'events'))`)
		f.run()
		f.stays(3, f.ids()...)
		_, tables := f.partitions()
		require.Equal(t, 4, tables)
		f.coversAll()
		f.drops(2)
		var rows int
		require.NoError(t, f.db.QueryRow(t, "SELECT count(*) FROM public.aside").Scan(&rows))
		require.Equal(t, 10, rows)
	})
}

// With a default partition, or without the ownership, rows are deleted.
func TestPartitions_RowsInstead(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major, daily+"; CREATE TABLE public.events_d PARTITION OF public.events DEFAULT")
		f.coversAll()
		f.run()
		require.Eventually(t, func() bool { return f.Stats().Rows == 30 }, wait, tick)
		attached, _ := f.partitions()
		require.Equal(t, 6, attached)
		require.Zero(t, f.Stats().Errors)
	})
}

// One that was to be detached is not, if it has got rows to keep before that was done: the rows of a gap must stay in
// their table. The others go on.
func TestPartitions_KeptAfterAll(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major, daily)
		f.db.Exec(t, `UPDATE walrelay.streams SET covered_since = current_date - 3, detached = jsonb_build_array(
			jsonb_build_object('oid', 'public.events_0'::regclass::oid::int8, 'name', 'public.events_0', 'schema', 'public',
				'table', 'events'))`)
		f.coversAll()
		f.run()
		f.drops(3)
		var there bool
		require.NoError(t, f.db.QueryRow(t, "SELECT EXISTS (SELECT FROM public.events_0)").Scan(&there))
		require.True(t, there)
		require.Zero(t, f.Stats().Errors)
	})
}

// A detachment that somebody else left incomplete is named with what completes it.
func TestPartitions_SomebodysDetachment(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		f := newFixture(t, major, daily)
		reader := f.reads()
		operator, err := f.Connect(t.Context(), f.session)
		require.NoError(t, err)
		defer func() { _ = operator.Close(context.Background()) }()
		_, err = operator.Exec(t.Context(), "ALTER TABLE public.events DETACH PARTITION public.events_5 CONCURRENTLY")
		require.ErrorContains(t, err, "lock timeout")
		require.NoError(t, reader.Rollback(t.Context()))

		f.coversAll()
		f.run()
		const mends = `ALTER TABLE "public"."events" DETACH PARTITION public.events_5 FINALIZE`
		f.fails(mends)
		f.db.Exec(t, mends)
		require.Eventually(t, func() bool { attached, _ := f.partitions(); return attached == 1 }, wait, tick)
	})
}

// What is not dropped yet stays recorded, however many are.
func TestPartitions_Remembered(t *testing.T) {
	f := newFixture(t, 18, daily)
	require.NoError(t, f.connect(t.Context(), f))
	defer f.hangUp(t.Context())
	all := []detached{{OID: 1}}
	for oid := range 3 * remembered {
		all = append(all, detached{OID: uint32(oid) + 2, Dropped: true})
	}
	require.NoError(t, f.record(t.Context(), all))
	var kept []detached
	require.NoError(t, f.db.QueryRow(t, "SELECT detached FROM walrelay.streams").Scan(&kept))
	require.Len(t, kept, remembered+1)
	require.EqualValues(t, []uint32{1, 2*remembered + 2}, []uint32{kept[0].OID, kept[1].OID})
}
