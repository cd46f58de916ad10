package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/walrelay/walrelay/kit/outbox"
	"github.com/walrelay/walrelay/kit/tx"
)

// The business change and its event, or neither.
func ExampleWrite() {
	pay := func(ctx context.Context, pool *pgxpool.Pool, order string) error {
		return pgx.BeginFunc(ctx, pool, func(q pgx.Tx) error {
			if _, err := q.Exec(ctx, `UPDATE orders SET state = 'paid' WHERE id = $1`, order); err != nil {
				return err
			}
			_, err := outbox.Write(ctx, q, outbox.Event{
				AggregateType: "order", AggregateID: order, Type: "order_paid", Payload: json.RawMessage(`{"state":"paid"}`),
			})
			return err
		})
	}
	_ = pay
}

// With database/sql.
func ExampleWrite_databaseSQL() {
	pay := func(ctx context.Context, db *sql.DB, order string) error {
		q, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = q.Rollback() }()
		_, err = outbox.Write(ctx, tx.Std(q), outbox.Event{AggregateType: "order", AggregateID: order, Type: "order_paid"})
		if err != nil {
			return err
		}
		return q.Commit()
	}
	_ = pay
}

// A job that may be started twice for the same hour.
func ExampleNamespace() {
	const reports outbox.Namespace = "shop.example/reports"
	run := func(ctx context.Context, q tx.Tx, hour time.Time) error {
		_, err := outbox.Write(ctx, q, outbox.Event{
			ID:            reports.Scheduled("hourly", hour, "first"),
			AggregateType: "report", AggregateID: "hourly", Type: "report_due",
		})
		if errors.Is(err, outbox.ErrDuplicate) {
			return nil // somebody was faster; the transaction is to be rolled back
		}
		return err
	}
	_ = run
	fmt.Println(reports.Scheduled("hourly", time.Unix(1_700_000_000, 0), "first"))
	fmt.Println(reports.Key("order", "4711", "paid"))
	// Output:
	// 99d1374c-bf43-8761-991d-0724e3388b1a
	// 788660ae-e6f6-85c7-bc05-149d5177128d
}

// A consumer that answers an event with another one.
func ExampleWithRecord() {
	type header struct {
		Key   string
		Value []byte
	}
	react := func(ctx context.Context, q tx.Tx, headers []header) error {
		ctx = outbox.WithRecord(ctx, func(name string) string {
			for _, h := range headers {
				if h.Key == name {
					return string(h.Value)
				}
			}
			return ""
		})
		_, err := outbox.Write(ctx, q, outbox.Event{AggregateType: "shipment", AggregateID: "1", Type: "ordered"})
		return err
	}
	_ = react
}
