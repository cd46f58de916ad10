package kit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/consumer"
	"github.com/walrelay/walrelay/kit/fence"
	"github.com/walrelay/walrelay/kit/idempotency"
	"github.com/walrelay/walrelay/kit/inbox"
	"github.com/walrelay/walrelay/kit/outbox"
	"github.com/walrelay/walrelay/kit/tx"
)

const (
	insertPayment = "INSERT INTO payments (id, amount) VALUES ($1, $2)"
	batch         = 100 // records
)

type (
	onConn = contender[*pgx.Conn]
	work   = func(ctx context.Context, conn *pgx.Conn, n int) error
)

// contenders are the mechanisms, each beside its bare work: an insert, an update, a batch of inserts.
func contenders(b *testing.B, conn *pgx.Conn) []onConn {
	b.Helper()
	_, err := conn.Exec(b.Context(), `CREATE TABLE payments (id text PRIMARY KEY, amount bigint NOT NULL);
		CREATE TABLE requested (id text PRIMARY KEY, amount bigint NOT NULL, request_id text NOT NULL UNIQUE);
		CREATE TABLE orders (id bigint PRIMARY KEY, state text NOT NULL, fence bigint) WITH (fillfactor = 50)`)
	require.NoError(b, err)
	_, _, err = partitions().Maintain(b.Context(), conn)
	require.NoError(b, err)
	all := []onConn{{name: "insert", run: inTx("bare", pay)}}
	all = append(all, atTheRow()...)
	all = append(all, atTheSender()...)
	all = append(all, atTheReceiver()...)
	all = append(all, updates()...)
	all = append(all, batches()...)
	for i := range all {
		if all[i].base == "" {
			all[i].base = "insert"
		}
	}
	return all
}

// pay is the work: one row.
func pay(ctx context.Context, t tx.Tx, id string) error {
	_, err := t.Exec(ctx, insertPayment, id, 100)
	return err
}

// inTx runs steps in a transaction, with an id that is theirs.
func inTx(name string, steps ...func(ctx context.Context, t tx.Tx, id string) error) work {
	return func(ctx context.Context, conn *pgx.Conn, n int) error {
		return pgx.BeginFunc(ctx, conn, func(t pgx.Tx) error {
			for _, step := range steps {
				if err := step(ctx, t, fmt.Sprintf("%s-%d", name, n)); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// once runs a statement that has to change a row.
func once(sql string, args ...any) func(ctx context.Context, t tx.Tx, id string) error {
	return func(ctx context.Context, t tx.Tx, id string) error {
		outcome, err := inbox.Affected(t.Exec(ctx, sql, append([]any{id}, args...)...))
		if err == nil && outcome != inbox.Applied {
			err = fmt.Errorf("%s: %s", id, outcome)
		}
		return err
	}
}

func atTheRow() []onConn {
	return []onConn{
		{name: "upsert", run: inTx("upsert", once("INSERT INTO payments (id, amount) VALUES ($1, $2) "+
			"ON CONFLICT (id) DO UPDATE SET amount = excluded.amount", 100))},
		{name: "on conflict do nothing", run: inTx("conflict", once(insertPayment+" ON CONFLICT (id) DO NOTHING", 100))},
		{name: "and an index for it", run: inTx("index", once("INSERT INTO requested (id, amount, request_id) "+
			"VALUES ($1, $2, 'r-' || $1::text) ON CONFLICT (request_id) DO NOTHING", 100))},
		{name: "unique behind a savepoint", run: inTx("savepoint", func(ctx context.Context, t tx.Tx, id string) error {
			_, err := inbox.Unique(ctx, t, "payments_pkey", func(ctx context.Context, t tx.Tx) error { return pay(ctx, t, id) })
			return err
		})},
		{name: "fence mark", run: inTx("mark", func(ctx context.Context, t tx.Tx, _ string) error {
			return fence.Admit(ctx, t, "ledger", fence.Repeatable, 1)
		}, pay)},
		{name: "fence token each time", run: func(ctx context.Context, conn *pgx.Conn, n int) error {
			if _, err := fence.Next(ctx, conn, "ledger"); err != nil {
				return err
			}
			return inTx("token", pay)(ctx, conn, n)
		}},
	}
}

func atTheSender() []onConn {
	event := func(id string) outbox.Event {
		return outbox.Event{
			AggregateType: "order", AggregateID: id, Type: "order_paid",
			Payload: []byte(`{"order": "4711", "state": "paid", "amount": "12.50", "currency": "EUR"}`),
		}
	}
	request := func(kind string, n int) idempotency.Request {
		return idempotency.Request{Scope: "shop", Key: fmt.Sprintf("%s-%d", kind, n)}
	}
	answer := func(r idempotency.Request) idempotency.Work {
		return func(ctx context.Context, t pgx.Tx) (idempotency.Response, error) {
			return idempotency.Response{Status: 201, Body: []byte(`{"state": "paid"}`)}, pay(ctx, t, r.Key)
		}
	}
	run := func(kind string) work {
		return func(ctx context.Context, conn *pgx.Conn, n int) error {
			r := request(kind, n)
			_, err := idempotency.Run(ctx, conn, r, answer(r))
			return err
		}
	}
	return []onConn{
		{name: "outbox row", run: inTx("row", pay, func(ctx context.Context, t tx.Tx, id string) error {
			_, err := outbox.Write(ctx, t, event(id))
			return err
		})},
		{name: "outbox row, id of a key", run: inTx("keyed", pay, func(ctx context.Context, t tx.Tx, id string) error {
			e := event(id)
			e.ID = outbox.Namespace("shop.example/orders").Key("order", id, "paid")
			_, err := outbox.Write(ctx, t, e)
			return err
		})},
		{name: "outbox message", run: inTx("message", pay, func(ctx context.Context, t tx.Tx, id string) error {
			_, err := outbox.Emit(ctx, t, "shop", event(id))
			return err
		})},
		{name: "idempotency key", run: run("key")},
		{name: "the same in the caller's tx", run: func(ctx context.Context, conn *pgx.Conn, n int) error {
			r := request("key in tx", n)
			return pgx.BeginFunc(ctx, conn, func(t pgx.Tx) error {
				_, err := idempotency.Run(ctx, t, r, answer(r))
				return err
			})
		}},
		{name: "a repetition of a key", prepare: run("replayed"), run: run("replayed")},
	}
}

func partitions() inbox.Partitions {
	const day = 24 * time.Hour
	return inbox.Partitions{Retention: inbox.Retention{Keep: 2 * day, RetryWindow: day}, Width: day}
}

// message has what every recorder needs.
func message(name string, n int) inbox.Message {
	return inbox.Message{
		Consumer: "billing", ID: fmt.Sprintf("%s-%d", name, n), Stream: name, Topic: "orders", Time: time.Now(),
		Position: inbox.Position(consumer.Position{Epoch: 1, Timeline: 1, LSN: uint64(n)}.String()),
	}
}

func effect(m inbox.Message) inbox.Effect {
	return func(ctx context.Context, t tx.Tx) error { return pay(ctx, t, m.ID) }
}

func atTheReceiver() []onConn {
	do := func(name string, r inbox.Recorder, want inbox.Outcome) work {
		return func(ctx context.Context, conn *pgx.Conn, n int) error {
			m := message(name, n)
			outcome, err := inbox.Do(ctx, conn, r, m, effect(m))
			if err == nil && outcome != want {
				err = errors.New(outcome.String())
			}
			return err
		}
	}
	return []onConn{
		{name: "inbox table", run: do("table", inbox.Table{}, inbox.Applied)},
		{
			name: "a duplicate", prepare: do("twice", inbox.Table{}, inbox.Applied),
			run: do("twice", inbox.Table{}, inbox.Duplicate),
		},
		{name: "inbox partitions", run: do("partitions", partitions(), inbox.Applied)},
		{name: "inbox high-water mark", run: do("high water", inbox.HighWater{}, inbox.Applied)},
		{name: "parking and inbox table", run: func(ctx context.Context, conn *pgx.Conn, n int) error {
			m := message("parking", n)
			_, err := inbox.Parking{After: 5}.Do(ctx, conn, inbox.Table{}, m, effect(m))
			return err
		}},
	}
}

func updates() []onConn {
	order := func(from int) work {
		return func(ctx context.Context, conn *pgx.Conn, n int) error {
			_, err := conn.Exec(ctx, "INSERT INTO orders (id, state) VALUES ($1, 'new')", from+n)
			return err
		}
	}
	update := func(from int, sql string) work {
		return func(ctx context.Context, conn *pgx.Conn, n int) error {
			return pgx.BeginFunc(ctx, conn, func(t pgx.Tx) error {
				_, err := t.Exec(ctx, sql, from+n)
				return err
			})
		}
	}
	const bare, checked, fenced = 0, 1_000_000, 2_000_000 // ids
	return []onConn{
		{
			name: "update", base: "update", prepare: order(bare),
			run: update(bare, "UPDATE orders SET state = 'paid' WHERE id = $1"),
		},
		{
			name: "state check", base: "update", prepare: order(checked),
			run: update(checked, "UPDATE orders SET state = 'paid' WHERE id = $1 AND state = 'new'"),
		},
		{
			name: "fenced update", base: "update", prepare: order(fenced),
			run: func(ctx context.Context, conn *pgx.Conn, n int) error {
				return pgx.BeginFunc(ctx, conn, func(t pgx.Tx) error {
					return fence.Write{
						Table: pgx.Identifier{"public", "orders"}, Key: map[string]any{"id": fenced + n},
						Set: map[string]any{"state": "paid"},
					}.Do(ctx, t, fence.Repeatable, 1)
				})
			},
		},
	}
}

func batches() []onConn {
	each := func(name string, r inbox.Recorder) work {
		return func(ctx context.Context, conn *pgx.Conn, n int) error {
			return pgx.BeginFunc(ctx, conn, func(t pgx.Tx) error {
				for i := range batch {
					m := message(name, n*batch+i)
					if _, err := inbox.Once(ctx, t, r, m, effect(m)); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	none := inbox.RecorderFunc(func(context.Context, tx.Tx, inbox.Message) (inbox.Outcome, error) {
		return inbox.Applied, nil
	})
	marks := consumer.NewMarks("billing")
	return []onConn{
		{name: "batch", base: "batch", run: each("batch", none)},
		{name: "batch, consumer marks", base: "batch", run: func(ctx context.Context, conn *pgx.Conn, n int) error {
			var messages []inbox.Message
			for i := range batch {
				messages = append(messages, message("marks", n*batch+i))
			}
			return consumer.Process(ctx, conn, marks, messages, describe,
				func(ctx context.Context, t pgx.Tx, m inbox.Message, _ consumer.Event) error { return pay(ctx, t, m.ID) })
		}},
		{name: "batch, inbox table", base: "batch", run: each("batched table", inbox.Table{})},
		{name: "batch, inbox high-water mark", base: "batch", run: each("batched mark", inbox.HighWater{})},
	}
}

// describe makes the headers that the message's record would have.
func describe(m inbox.Message) consumer.Record {
	headers := map[string]string{
		consumer.HeaderID: m.ID, consumer.HeaderStream: m.Stream, consumer.HeaderPosition: string(m.Position),
	}
	return consumer.Record{Topic: m.Topic, Partition: m.Partition, Headers: func(name string) ([]byte, bool) {
		value, ok := headers[name]
		return []byte(value), ok
	}}
}
