package e2e

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// reassemble puts transactions together as a consumer of several topics would: by id, each index once, until the
// count is reached. What is repeated must be marked as it was.
func reassemble(t *testing.T, records []*kgo.Record) map[string]map[int]string {
	t.Helper()
	transactions, counts := map[string]map[int]string{}, map[string]int{}
	for _, r := range records {
		if r.Attrs.IsControl() {
			continue
		}
		id := judge.Header(r, "walrelay-transaction-id")
		require.Equal(t, judge.Header(r, "walrelay-position")[9:34], id)
		index, err := strconv.Atoi(judge.Header(r, "walrelay-transaction-index"))
		require.NoError(t, err)
		if transactions[id] == nil {
			transactions[id] = map[int]string{}
		}
		event := judge.Header(r, "id")
		if before, seen := transactions[id][index]; seen {
			require.Equal(t, before, event)
		}
		transactions[id][index] = event
		if count := judge.Header(r, "walrelay-transaction-count"); count != "" {
			require.Equal(t, fmt.Sprint(index+1), count)
			counts[id] = index + 1
		}
	}
	for id, events := range transactions {
		require.Len(t, events, counts[id], id)
	}
	return transactions
}

// Transactions that are spread over topics and partitions can be put together again, although the relay is
// killed meanwhile and some are larger than what the window holds.
func TestTransactions_Reassembled(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{"at-least-once", "exactly-once"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 3)
			if delivery == "exactly-once" {
				s.exactly()
			}
			s.set("WALRELAY_TRANSACTION_HEADERS", "true")
			s.set("WALRELAY_IN_FLIGHT_EVENTS", "100") // less than the largest transaction has
			aggregates := []string{"orders", "payments"}
			s.cluster.CreateTopic(t, s.prefix+"payments", 2, nil)
			relay := s.relay()
			ledger := judge.NewLedger()
			sizes := []int{1, 2, 5000, 3, 4000, 1}
			for i, size := range sizes {
				require.NoError(t, s.across(aggregates, size, ledger))
				if i == 3 {
					relay.Kill(t)
					relay = s.relay()
				}
			}
			s.caughtUp()
			s.stop(relay)
			v := s.verdict(ledger, s.topic, s.prefix+"payments")
			require.NoError(t, v.Err())
			var records []*kgo.Record
			for _, of := range s.everything(s.topic, s.prefix+"payments") {
				records = append(records, of...)
			}
			got := map[int]int{}
			for _, events := range reassemble(t, records) {
				got[len(events)]++
			}
			require.Equal(t, map[int]int{1: 2, 2: 1, 3: 1, 4000: 1, 5000: 1}, got)
		})
	}
}

// The last event is known although it is undeliverable: its letter carries the count. A replay is outside of
// the transaction.
func TestTransactions_PoisonIsCounted(t *testing.T) {
	t.Parallel()
	s := newPoisoned(t, testenv.Postgres(t, lastMajor()), "dead-letter")
	s.set("WALRELAY_TRANSACTION_HEADERS", "true")
	s.set("WALRELAY_COLUMN_TIMESTAMP", "")
	relay := s.relay()
	consumer, letters := s.consume(s.topic), s.consume(s.dead())
	s.db.Exec(t, `INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload, headers) VALUES
		($1, 'orders', 'a', 'created', '{}', NULL), ($2, 'orders', 'b', 'created', '{}', '[]')`, eventID(1), eventID(2))
	first, letter := consumer.WaitFor(t, 1, wait)[0], letters.WaitFor(t, 1, wait)[0]
	require.Equal(t, "0", judge.Header(first, "walrelay-transaction-index"))
	require.Empty(t, judge.Header(first, "walrelay-transaction-count"))
	require.Equal(t, judge.Header(first, "walrelay-transaction-id"), judge.Header(letter, "walrelay-transaction-id"))
	require.Equal(t, "1", judge.Header(letter, "walrelay-transaction-index"))
	require.Equal(t, "2", judge.Header(letter, "walrelay-transaction-count"))
	s.caughtUp()

	s.run("replay", "--id", eventID(1))
	replayed := consumer.WaitFor(t, 1, wait)[0]
	require.NotEmpty(t, judge.Header(replayed, "walrelay-replay"))
	require.Empty(t, judge.Header(replayed, "walrelay-transaction-id"))
	s.stop(relay)
}
