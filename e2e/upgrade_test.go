package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// The upgrades of docs/upgrades.md, step by step, from PostgreSQL 15 to 18. Nothing is lost, nothing is repeated, and
// a consumer by position drops nothing. What pg_upgrade does has to be believed: TestSlot_OtherServer takes its result.

// upgrade is a stream on the old server that has delivered, and the new server's database.
func upgrade(t *testing.T) (f *follower, relay *testenv.Process, green *testenv.Database) {
	t.Helper()
	f = follow(newSetup(t, testenv.Postgres(t, 15), testenv.Kafka(t), 2))
	relay = f.relay()
	for range 20 {
		f.delivers()
	}
	return f, relay, testenv.Postgres(t, 18).Database(t)
}

// drains is what comes before each: the writers have stopped, and what they wrote is confirmed.
func (f *follower) drains(relay *testenv.Process) {
	f.t.Helper()
	f.writes()
	f.caughtUp()
	f.stop(relay)
}

// moves configures the other server.
func (f *follower) moves(green *testenv.Database) (blue *testenv.Database) {
	blue, f.db = f.db, green
	f.set("WALRELAY_DATABASE_URL", green.DSN)
	return blue
}

// concludes says what the topic has to have in the end.
func (f *follower) concludes(epochs int) {
	f.t.Helper()
	f.delivers()
	f.caughtUp()
	v := f.verdict(f.ledger, f.topic)
	require.NoError(f.t, v.Err())
	require.Len(f.t, v.Epochs, epochs)
	require.Equal(f.t, f.events, v.Records, "each once")
}

func TestUpgrade_Copy(t *testing.T) {
	t.Parallel()
	f, relay, green := upgrade(t)
	f.drains(relay)
	blue := f.moves(green)
	f.run("migrate", "up")
	f.carry(blue, "public.outbox")
	f.carry(blue, "walrelay.streams")
	fatal(t, f.start(), "walrelay stream new-epoch")
	f.goesOn()
	f.concludes(2)
}

// The registry was not copied, so that the stream begins anew, with positions below the old ones: before anybody
// writes, the epoch is raised.
func TestUpgrade_WithoutRegistry(t *testing.T) {
	t.Parallel()
	f, relay, green := upgrade(t)
	f.drains(relay)
	blue := f.moves(green)
	f.run("migrate", "up")
	f.carry(blue, "public.outbox")
	f.stop(f.relay())
	f.goesOn()
	f.concludes(2)
}

// By PostgreSQL's own logical replication, as managed services do it: the tables of walrelay are among the others.
func TestUpgrade_BlueGreen(t *testing.T) {
	t.Parallel()
	f, relay, green := upgrade(t)
	blue := f.moves(green)
	f.run("migrate", "up")
	f.moves(blue)
	blue.Exec(t, "CREATE PUBLICATION upgrade FOR ALL TABLES")
	green.Exec(t, "TRUNCATE walrelay.schema_version") // the same rows come from the other side
	green.Exec(t, "CREATE SUBSCRIPTION upgrade CONNECTION '"+blue.DSN+"' PUBLICATION upgrade "+
		"WITH (slot_name = '"+blue.Slot(t)+"')")
	for range 20 {
		f.delivers()
	}
	f.drains(relay)
	require.Eventually(t, func() bool {
		var epochs, rows, copying int
		require.NoError(t, green.QueryRow(t, "SELECT count(*) FROM walrelay.streams").Scan(&epochs))
		require.NoError(t, green.QueryRow(t, "SELECT count(*) FROM outbox").Scan(&rows))
		require.NoError(t, green.QueryRow(t, "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'").
			Scan(&copying))
		return epochs == 1 && rows == f.events && copying == 0 // the other tables are copied each in its own time
	}, wait, tick)
	green.Exec(t, "DROP SUBSCRIPTION upgrade")
	f.moves(green)
	f.goesOn()
	f.concludes(2)
}
