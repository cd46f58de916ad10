package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/walrelay/walrelay/kit/outbox"
	"github.com/walrelay/walrelay/kit/tx"
)

// order is what a merchant asks for.
type order struct {
	Invoice string `json:"invoice"`
	Account string `json:"account"`
	Amount  int64  `json:"amount"` // in cents
}

// payment is an order that was carried out. It is the API's answer, and the payload of the event.
type payment struct {
	ID       string `json:"id"`
	Merchant string `json:"merchant"`
	order
}

const (
	aggregate = "payment"
	charged   = "payment_charged"
	topic     = "outbox.event." + aggregate // where walrelay sends the aggregate by default
)

var errFunds = errors.New("the account has not enough money")

// charge takes the money and records that it did, in the transaction t.
func charge(ctx context.Context, t tx.Tx, merchant string, o order) (payment, error) {
	p := payment{ID: outbox.NewID(), Merchant: merchant, order: o}
	tag, err := t.Exec(ctx, `UPDATE accounts SET balance = balance - $2 WHERE id = $1 AND balance >= $2`,
		p.Account, p.Amount)
	switch {
	case err != nil:
		return p, fmt.Errorf("take money: %w", err)
	case tag.RowsAffected() == 0:
		return p, errFunds // before anything was written
	}
	_, err = t.Exec(ctx, `INSERT INTO payments (id, merchant, invoice, account, amount) VALUES ($1, $2, $3, $4, $5)`,
		p.ID, p.Merchant, p.Invoice, p.Account, p.Amount)
	if err != nil {
		return p, fmt.Errorf("insert payment: %w", err)
	}
	payload, err := json.Marshal(p)
	if err != nil {
		return p, fmt.Errorf("encode payment: %w", err)
	}
	// The account is the key, so its payments stay in order.
	_, err = outbox.Write(ctx, t, outbox.Event{
		AggregateType: aggregate, AggregateID: p.Account, Type: charged, Payload: payload,
	})
	return p, err
}

// book adds a payment to the ledger, in the transaction t. Twice would be too much.
func book(ctx context.Context, t tx.Tx, p payment) error {
	_, err := t.Exec(ctx, `INSERT INTO entries (payment, merchant, amount) VALUES ($1, $2, $3)`,
		p.ID, p.Merchant, p.Amount)
	if err != nil {
		return fmt.Errorf("insert entry: %w", err)
	}
	_, err = t.Exec(ctx, `INSERT INTO merchants (id, total) VALUES ($1, $2)
		ON CONFLICT (id) DO UPDATE SET total = merchants.total + excluded.total`, p.Merchant, p.Amount)
	if err != nil {
		return fmt.Errorf("raise total: %w", err)
	}
	return nil
}
