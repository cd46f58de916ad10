package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/testenv"
)

// An event is a number, which its id carries, in order to tell whether all of them arrive: the last
// 12 digits of a UUID.
const (
	idPrefix  = "00000000-0000-4000-8000-"
	idDigits  = 12
	maxEvents = 1_000_000_000
)

// eventColumns makes the values of event i, for both measurements: 10,000 keys, 265 bytes of payload.
const eventColumns = `('` + idPrefix + `' || lpad(i::text, 12, '0'))::uuid,
	'order', 'customer-' || lpad((i % 10000)::text, 5, '0'), 'order-placed',
	('{"order": "' || lpad(i::text, 9, '0') || '", "customer": "' || lpad((i % 10000)::text, 5, '0')
	|| '", "currency": "EUR", "total": ' || 100 + i % 900 || '.95, "items": [{"sku": "KX-20117", "price": 12.50, '
	|| '"quantity": 3}, {"sku": "PB-00481", "price": 62.45, "quantity": 1}], "note": "'
	|| repeat('ring twice, ', 3) || '", "shipping": "express"}')::jsonb`

const insertInto = `INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload) SELECT ` +
	eventColumns + ` FROM `

// backlog is the write-ahead log that every contender of a series drains.
type backlog struct {
	end          string // position behind the last commit
	payloadBytes float64
}

// fill writes the events, rows of them a transaction. One server-side loop does that, since how the
// backlog came about makes no difference to its readers.
func (b *bench) fill(ctx context.Context, db *testenv.Database, rows int) (backlog, error) {
	conn, err := db.Conn.Acquire(ctx)
	if err != nil {
		return backlog{}, fmt.Errorf("connect: %w", err)
	}
	defer conn.Release()
	loop := fmt.Sprintf(`
		DO $$
		DECLARE n bigint := 0;
		BEGIN
			WHILE n < %[1]d LOOP
				%[3]s generate_series(n, least(n + %[2]d, %[1]d) - 1) AS i;
				COMMIT;
				n := n + %[2]d;
			END LOOP;
		END $$`, b.options.events, rows, insertInto)
	var log backlog
	began := time.Now()
	for _, sql := range []string{"SET synchronous_commit = off", loop} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return backlog{}, fmt.Errorf("fill: %w", err)
		}
	}
	if err := conn.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&log.end); err != nil {
		return backlog{}, fmt.Errorf("read position: %w", err)
	}
	b.t.Logf("filled %d events, %d a transaction, in %.1fs", b.options.events, rows, time.Since(began).Seconds())
	const size = "SELECT avg(octet_length(payload::text)) FROM (SELECT payload FROM public.outbox LIMIT 1000) AS first"
	if err := conn.QueryRow(ctx, size).Scan(&log.payloadBytes); err != nil {
		return backlog{}, fmt.Errorf("read payload size: %w", err)
	}
	if _, err := conn.Exec(ctx, "CHECKPOINT"); err != nil { // now, and not while somebody drains
		return backlog{}, fmt.Errorf("checkpoint: %w", err)
	}
	return log, pause(ctx, settle)
}

// createSlots makes a slot for each round.
func (b *bench) createSlots(ctx context.Context, db *testenv.Database) ([]string, error) {
	var names []string
	for range b.options.rounds {
		name := db.Slot(b.t)
		if _, err := db.Conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", name); err != nil {
			return nil, fmt.Errorf("create slot: %w", err)
		}
		names = append(names, name)
	}
	return names, nil
}

// dropSlot waits until the server has noticed that the contender is gone.
func dropSlot(ctx context.Context, db *testenv.Database, name string) error {
	for {
		const drop = `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
			WHERE slot_name = $1 AND NOT active`
		switch dropped, err := db.Conn.Exec(ctx, drop, name); {
		case err != nil:
			return fmt.Errorf("drop slot: %w", err)
		case dropped.RowsAffected() > 0:
			return nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// eventNumber is the number of the event that a record carries, below limit.
func eventNumber(record *kgo.Record, limit int) (int, error) {
	for _, h := range record.Headers {
		if h.Key != "id" {
			continue
		}
		if len(h.Value) != len(idPrefix)+idDigits {
			return 0, errors.New("read event: its id is no UUID")
		}
		n, err := strconv.Atoi(string(h.Value[len(idPrefix):]))
		if err != nil || n < 0 || n >= limit {
			return 0, errors.New("read event: its id is none of ours")
		}
		return n, nil
	}
	return 0, errors.New("read event: it has no id")
}
