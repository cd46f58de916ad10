package inbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/walrelay/walrelay/kit/inbox"
	"github.com/walrelay/walrelay/kit/tx"
	"github.com/walrelay/walrelay/migrations"
	"github.com/walrelay/walrelay/testenv"
)

// BenchmarkDo compares the effect alone with the effect behind each record.
func BenchmarkDo(b *testing.B) {
	db := testenv.Postgres(b, 18).Database(b)
	config, err := pgx.ParseConfig(db.DSN)
	if err != nil {
		b.Fatal(err)
	}
	handle := stdlib.OpenDB(*config)
	defer func() { _ = handle.Close() }()
	if _, err := migrations.UpKit(b.Context(), handle); err != nil {
		b.Fatal(err)
	}
	db.Exec(b, "CREATE TABLE effects (message text NOT NULL)")
	none := inbox.RecorderFunc(func(context.Context, tx.Tx, inbox.Message) (inbox.Outcome, error) {
		return inbox.Applied, nil
	})
	next := 0
	run := func(name string, do func(ctx context.Context, m inbox.Message, effect inbox.Effect) (inbox.Outcome, error)) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				next++
				m := message(next)
				m.ID = fmt.Sprintf("%s-%d", name, next)
				if _, err := do(b.Context(), m, apply(m)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for name, r := range map[string]inbox.Recorder{
		"effect alone": none, "table": inbox.Table{}, "high water": inbox.HighWater{},
	} {
		run(name, func(ctx context.Context, m inbox.Message, effect inbox.Effect) (inbox.Outcome, error) {
			return inbox.Do(ctx, db.Conn, r, m, effect)
		})
	}
	run("parking and table", func(ctx context.Context, m inbox.Message, effect inbox.Effect) (inbox.Outcome, error) {
		return inbox.Parking{After: 5}.Do(ctx, db.Conn, inbox.Table{}, m, effect)
	})
}
