package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

const shopTables = `
CREATE TABLE orders (
	id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	customer    text NOT NULL,
	state       text NOT NULL,
	total_cents bigint NOT NULL
);
CREATE TABLE order_items (
	order_id bigint NOT NULL REFERENCES orders,
	product  text NOT NULL,
	quantity int NOT NULL,
	PRIMARY KEY (order_id, product)
)`

const (
	clerks = 4
	// oneInRollsBack is how often a transaction is rolled back although everything was written.
	oneInRollsBack = 20
	// openOrders is how many orders a clerk works on at a time.
	openOrders = 5
)

func customers() []string {
	return []string{"ada", "barbara", "claude", "donald", "edsger", "frances", "grace", "hedy"}
}

func products() []string {
	return []string{"teapot", "lamp", "kite", "globe", "violin", "compass"}
}

// shop takes orders; each change of an order is a transaction that holds the order's event as well.
// Every clerk serves customers of his own, so that the events of a customer have one order.
type shop struct {
	url    string
	rate   int // events a second, on average
	ledger *ledger
	began  time.Time
}

// open makes the shop's tables.
func (s *shop) open(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return fmt.Errorf("open shop: %w", err)
	}
	defer conn.Close(ctx) //nolint:errcheck // all is done
	if _, err := conn.Exec(ctx, shopTables); err != nil {
		return fmt.Errorf("open shop: %w", err)
	}
	return nil
}

// run takes orders until open ends. What has been begun is finished, unless ctx ends: no transaction is
// left whose outcome nobody knows.
func (s *shop) run(open, ctx context.Context) error {
	s.began = time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for number := range clerks {
		group.Go(func() error { return s.clerk(open, ctx, number) })
	}
	group.Go(func() error { return s.sweep(open, ctx) })
	return group.Wait()
}

// work calls do on a connection of its own, after pauses, until open ends.
func (s *shop) work(open, ctx context.Context, pause func() time.Duration,
	do func(context.Context, *pgx.Conn) error,
) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return fmt.Errorf("enter shop: %w", err)
	}
	defer conn.Close(ctx) //nolint:errcheck // all is done
	next := time.Now().Add(pause())
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	for {
		select {
		case <-open.Done():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		step, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := do(step, conn)
		cancel()
		if err != nil {
			return err
		}
		// What took long is made up for, within limits.
		if next = next.Add(pause()); time.Since(next) > time.Second {
			next = time.Now()
		}
		timer.Reset(time.Until(next))
	}
}

// sweep deletes old events, as an application does: walrelay does not need the rows any more.
func (s *shop) sweep(open, ctx context.Context) error {
	every := func() time.Duration { return 10 * time.Second }
	return s.work(open, ctx, every, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "DELETE FROM outbox WHERE created_at < now() - interval '30 seconds'"); err != nil {
			return fmt.Errorf("sweep outbox: %w", err)
		}
		return nil
	})
}

// order is one that a clerk is working on.
type order struct {
	id       int64
	customer uint8
	state    string
	cents    int64
}

// clerk places orders and moves them on, at random times.
func (s *shop) clerk(open, ctx context.Context, number int) error {
	random := rand.New(rand.NewPCG(1, uint64(number)))
	pause := func() time.Duration {
		// Business comes in waves of half a minute, and customers when they please.
		wave := 1 + 0.4*math.Sin(2*math.Pi*time.Since(s.began).Seconds()/30)
		mean := float64(clerks) * float64(time.Second) / (float64(s.rate) * wave)
		return time.Duration(min(random.ExpFloat64(), 5) * mean)
	}
	var orders []order
	return s.work(open, ctx, pause, func(ctx context.Context, conn *pgx.Conn) error {
		next := order{customer: uint8(number + clerks*random.IntN(len(customers())/clerks))}
		if len(orders) == openOrders {
			next, orders = orders[0], orders[1:]
		}
		changed, err := s.change(ctx, conn, random, next)
		if err != nil {
			return fmt.Errorf("change order: %w", err)
		}
		if changed.state != "" && changed.state != "shipped" {
			orders = append(orders, changed)
		}
		return nil
	})
}

// change moves an order on in one transaction with its event. It returns the order as it was when the
// transaction was rolled back.
func (s *shop) change(ctx context.Context, conn *pgx.Conn, random *rand.Rand, before order) (order, error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return before, err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // does nothing after the end
	after := before
	var kind string
	switch before.state {
	case "":
		after.state, kind = "placed", "OrderPlaced"
		err = place(ctx, tx, random, &after)
	case "placed":
		after.state, kind = "paid", "OrderPaid"
		err = move(ctx, tx, after)
	default:
		after.state, kind = "shipped", "OrderShipped"
		err = move(ctx, tx, after)
	}
	if err != nil {
		return before, err
	}
	id := s.ledger.begin(after.customer)
	if err := publish(ctx, tx, id, kind, after); err != nil {
		return before, err
	}
	if random.IntN(oneInRollsBack) == 0 {
		s.ledger.rolledBack(id)
		return before, tx.Rollback(ctx)
	}
	s.ledger.committing(id, time.Now())
	if err := tx.Commit(ctx); err != nil {
		return before, err
	}
	s.ledger.committed(id)
	return after, nil
}

func place(ctx context.Context, tx pgx.Tx, random *rand.Rand, o *order) error {
	o.cents = 500 + random.Int64N(20000)
	err := tx.QueryRow(ctx, "INSERT INTO orders (customer, state, total_cents) VALUES ($1, $2, $3) RETURNING id",
		customers()[o.customer], o.state, o.cents).Scan(&o.id)
	if err != nil {
		return err
	}
	for _, product := range random.Perm(len(products()))[:1+random.IntN(3)] {
		_, err := tx.Exec(ctx, "INSERT INTO order_items (order_id, product, quantity) VALUES ($1, $2, $3)",
			o.id, products()[product], 1+random.IntN(4))
		if err != nil {
			return err
		}
	}
	return nil
}

func move(ctx context.Context, tx pgx.Tx, o order) error {
	_, err := tx.Exec(ctx, "UPDATE orders SET state = $2 WHERE id = $1", o.id, o.state)
	return err
}

// publish is all that an application does for walrelay.
func publish(ctx context.Context, tx pgx.Tx, id eventID, kind string, o order) error {
	customer := customers()[o.customer]
	payload, err := json.Marshal(map[string]any{"order": o.id, "customer": customer, "total_cents": o.cents})
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		VALUES ($1, 'order', $2, $3, $4)`, [16]byte(id), customer, kind, payload)
	return err
}
