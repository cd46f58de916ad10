package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// Topics by type, by map and with illegal characters replaced, from a table that names its topics itself.
func TestTopic_Rules(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newBare(t, testenv.Postgres(t, major), testenv.Kafka(t), 1)
		s.db.Exec(t, `CREATE TABLE "Events" (topic text, key text, body text, kind text, no bigint PRIMARY KEY);
			CREATE PUBLICATION walrelay FOR TABLE "Events" WITH (publish = 'insert')`)
		s.run("migrate", "up")
		mapped, typed := s.prefix+"mapped", s.prefix+"typed"
		replaced := s.prefix + "order_events_"
		for _, topic := range []string{mapped, typed, replaced} {
			s.cluster.CreateTopic(t, topic, 1, nil)
		}
		for name, value := range map[string]string{
			"TABLES": `"Events"`, "COLUMN_ID": "no", "COLUMN_KEY": "key", "COLUMN_PAYLOAD": "body", "COLUMN_TYPE": "kind",
			"TOPIC":         "{topic}",
			"TOPIC_MAP":     "order bills/é=" + mapped + ", unused=" + mapped,
			"TOPIC_BY_TYPE": "Paid=" + typed,
			"TOPIC_INVALID": "replace", "ON_POISON": "skip",
		} {
			s.set("WALRELAY_"+name, value)
		}
		relay := s.relay()
		s.db.Exec(t, `INSERT INTO "Events" VALUES ($1, 'k', 'plain', 'Sent', 1), ('order bills/é', 'k', 'mapped', NULL, 2),
			($2, 'k', 'replaced', 'Sent', 3), ($1, 'k', 'typed', 'Paid', 4), ('', 'k', 'empty', 'Sent', 5),
			(NULL, 'k', 'NULL', 'Paid', 6)`, s.topic, s.prefix+"order events/")
		for topic, value := range map[string]string{
			s.topic: "plain", mapped: "mapped", replaced: "replaced", typed: "typed",
		} {
			require.Equal(t, value, string(s.consume(topic).WaitFor(t, 1, wait)[0].Value))
		}
		s.caughtUp()
		require.Equal(t, 1.0, s.metric("walrelay_renamed_events_total", `topic="`+replaced+`"`))
		require.Contains(t, relay.Log(), "characters that a topic cannot have were replaced")
		var reasons []string
		require.NoError(t, s.db.QueryRow(t, `SELECT array_agg(reason ORDER BY position) FROM walrelay.dead_letters`).
			Scan(&reasons))
		require.Equal(t, []string{"the topic name is empty", `column topic of public."Events" is NULL`}, reasons)
		s.stop(relay)

		// Other topics for the same events are another routing: the epoch says so.
		before := s.registered("epoch")
		s.set("WALRELAY_TOPIC_INVALID", "refuse")
		s.stop(s.relay())
		require.NotEqual(t, before, s.registered("epoch"))
	})
}
