package e2e

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// A database with the encoding SQL_ASCII may hold text that is not UTF-8. It is sent as it is; only what JSON is made
// of cannot be delivered, and neither stops the stream.
func TestEncoding_SQLASCII(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		t.Parallel()
		server, cluster := testenv.Postgres(t, major), testenv.Kafka(t)
		s := newIn(t, server.Database(t, "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"), cluster, 1)
		s.run("migrate", "up")
		s.db.Exec(t, "ALTER TABLE outbox ALTER payload TYPE text, ALTER id TYPE text USING id::text")
		dead := s.prefix + "dead"
		cluster.CreateTopic(t, dead, 1, nil)
		s.set("WALRELAY_ON_POISON", "dead-letter")
		s.set("WALRELAY_DEAD_LETTER_TOPIC", dead)
		s.set("WALRELAY_KEY_FORMAT", "json")
		s.relay()

		db, err := pgx.Connect(t.Context(), s.db.DSN+"&client_encoding=SQL_ASCII")
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close(context.Background()) })
		insert := func(id, key, payload string) {
			_, err := db.Exec(t.Context(), insertSQL, id, key, payload)
			require.NoError(t, err)
		}
		insert("1", "k", "caf\xe9")
		insert("\xe9", "caf\xe9", "{}")
		insert("3", "k", "café")
		records := cluster.Consume(t, s.topic).WaitFor(t, 2, wait)
		require.Equal(t, []string{"caf\xe9", "café"}, []string{string(records[0].Value), string(records[1].Value)})
		letter := cluster.Consume(t, dead).WaitFor(t, 1, wait)[0]
		require.Equal(t, "caf\xe9", string(letter.Key))
		require.Equal(t, "\xe9", judge.Header(letter, "id"))
		require.Contains(t, judge.Header(letter, "walrelay-dead-letter-reason"), "is not UTF-8")
		require.Contains(t, s.run("deadletters", "list"), "is not UTF-8")
		s.run("replay", "--id", "1")
		again := cluster.Consume(t, s.topic).WaitFor(t, 3, wait)[2]
		require.Equal(t, "caf\xe9", string(again.Value))
	})
}
