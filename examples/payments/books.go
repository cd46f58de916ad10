package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/testenv"
)

// books are what clients were told, and what both databases hold in the end.
type books struct {
	accepted map[string]payment // by invoice
	refused  map[string]bool
	charged  []payment          // rows of the payments database
	events   map[string]int     // rows of its outbox by the payment's id
	entries  map[string][]int64 // amounts in the ledger by the payment's id
	balances int64              // sum of the accounts
	opened   int64              // the same at the start
	totals   int64              // sum of the merchants
	pending  int                // idempotency keys that are still in progress
	parked   int                // records that the consumer has given up
}

// sums are what the proof prints.
type sums struct {
	accepted, charged, applied int
	payments, ledger           int64 // cents
}

func (w *world) readBooks(ctx context.Context, c *clients) (*books, error) {
	b := &books{
		accepted: c.accepted, refused: c.refused, opened: w.opened, events: map[string]int{}, entries: map[string][]int64{},
	}
	var p payment
	var id string
	var n int
	var amount int64
	for _, read := range []struct {
		from *testenv.Database
		sql  string
		into []any
		add  func()
	}{
		{
			w.payments, "SELECT id::text, merchant, invoice, account, amount FROM payments",
			[]any{&p.ID, &p.Merchant, &p.Invoice, &p.Account, &p.Amount},
			func() { b.charged = append(b.charged, p) },
		},
		{
			w.payments, "SELECT payload ->> 'id', count(*) FROM outbox GROUP BY 1",
			[]any{&id, &n},
			func() { b.events[id] = n },
		},
		{
			w.ledger, "SELECT payment::text, amount FROM entries",
			[]any{&id, &amount},
			func() { b.entries[id] = append(b.entries[id], amount) },
		},
		{w.payments, "SELECT sum(balance)::bigint FROM accounts", []any{&b.balances}, func() {}},
		{w.ledger, "SELECT coalesce(sum(total), 0)::bigint FROM merchants", []any{&b.totals}, func() {}},
		{
			w.payments, "SELECT count(*) FROM walrelay_kit.idempotency_keys WHERE state = 'in_progress'",
			[]any{&b.pending},
			func() {},
		},
		{
			w.ledger, "SELECT count(*) FROM walrelay_kit.inbox_attempts WHERE parked_at IS NOT NULL",
			[]any{&b.parked},
			func() {},
		},
	} {
		rows, err := read.from.Conn.Query(ctx, read.sql)
		if err == nil {
			_, err = pgx.ForEachRow(rows, read.into, func() error {
				read.add()
				return nil
			})
		}
		if err != nil {
			return nil, fmt.Errorf("read books: %w", err)
		}
	}
	return b, nil
}

func (b *books) sums() sums {
	s := sums{accepted: len(b.accepted), charged: len(b.charged)}
	for _, p := range b.charged {
		s.payments += p.Amount
	}
	for _, amounts := range b.entries {
		s.applied += len(amounts)
		for _, amount := range amounts {
			s.ledger += amount
		}
	}
	return s
}

func (s sums) write(w io.Writer) error {
	_, err := fmt.Fprintf(w, "accepted %d charged %d applied %d sum %d sum %d difference %d\n",
		s.accepted, s.charged, s.applied, s.payments, s.ledger, s.payments-s.ledger)
	return err
}

// faults are all the ways in which the books don't agree.
func (b *books) faults() (found []string) {
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	charges := map[string]int{} // by invoice
	ids := map[string]bool{}
	for _, p := range b.charged {
		charges[p.Invoice]++
		ids[p.ID] = true
		if told, ok := b.accepted[p.Invoice]; !ok {
			fault("invoice %s: charged, and nobody was told so (refused: %t)", p.Invoice, b.refused[p.Invoice])
		} else if told != p {
			fault("invoice %s: charged otherwise than the client was told", p.Invoice)
		}
		if n := b.events[p.ID]; n != 1 {
			fault("invoice %s: %d events", p.Invoice, n)
		}
		if entries := b.entries[p.ID]; len(entries) != 1 || entries[0] != p.Amount {
			fault("invoice %s: charged %d, in the ledger %d", p.Invoice, p.Amount, entries)
		}
	}
	for _, invoice := range slices.Sorted(maps.Keys(b.accepted)) {
		if n := charges[invoice]; n != 1 {
			fault("invoice %s: accepted, and charged %d times", invoice, n)
		}
		if b.refused[invoice] {
			fault("invoice %s: accepted and refused", invoice)
		}
	}
	for id := range b.events {
		if !ids[id] {
			fault("payment %s: an event without a payment", id)
		}
	}
	for id := range b.entries {
		if !ids[id] {
			fault("payment %s: an entry without a payment", id)
		}
	}
	s := b.sums()
	if b.opened-b.balances != s.payments {
		fault("%d left the accounts for payments of %d", b.opened-b.balances, s.payments)
	}
	if b.totals != s.ledger {
		fault("the merchants have %d from entries of %d", b.totals, s.ledger)
	}
	if b.pending > 0 || b.parked > 0 {
		fault("%d keys are in progress and %d records parked", b.pending, b.parked)
	}
	return found
}
