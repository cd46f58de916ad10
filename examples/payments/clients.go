package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/walrelay/walrelay/kit/idempotency/httpkey"
)

const buyers = 12

// clients ask for payments and remember what they were told. Whoever gets no answer asks again.
type clients struct {
	t        testing.TB
	http     *http.Client
	fleet    *fleet
	accounts []string

	mu       sync.Mutex
	accepted map[string]payment // by invoice
	refused  map[string]bool    // invoices, for lack of money or for another order's key
}

// answer is the final word on a request: 201, 402 or 422.
type answer struct {
	status   int
	body     string
	replayed bool
}

func newClients(w *world) *clients {
	f := &fleet{addrs: w.addrs, base: &http.Transport{MaxIdleConnsPerHost: buyers}}
	w.t.Cleanup(f.base.CloseIdleConnections)
	return &clients{
		t: w.t, fleet: f, accounts: w.accounts,
		http:     &http.Client{Transport: &httpkey.Transport{Base: f, MaxPause: time.Second}},
		accepted: map[string]payment{}, refused: map[string]bool{},
	}
}

// start lets the buyers ask until stop is closed; wait then returns when each has all its answers.
func (c *clients) start(ctx context.Context, seed uint64, stop <-chan struct{}) (wait func()) {
	var all sync.WaitGroup
	for number := range buyers {
		b := &buyer{clients: c, number: number, random: rand.New(rand.NewPCG(seed, uint64(1+number)))}
		all.Go(func() {
			if err := b.buy(ctx, stop); err != nil {
				c.t.Errorf("buyer %d: %v", number, err)
			}
		})
	}
	return all.Wait
}

type buyer struct {
	*clients
	number int
	random *rand.Rand
	orders int // made so far
	keys   int
}

func (b *buyer) buy(ctx context.Context, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := b.purchase(ctx); err != nil {
			return err
		}
		pause(ctx, between(b.random, 0, 100*time.Millisecond))
	}
}

// merchants and keys are such that each key is used by three merchants, who must not meet.
func (b *buyer) merchant() string { return fmt.Sprintf("merchant-%d", b.number%3) }

func (b *buyer) newKey() string {
	b.keys++
	return fmt.Sprintf("%d-%d", b.number/3, b.keys)
}

func (b *buyer) newOrder() order {
	b.orders++
	return order{
		Invoice: fmt.Sprintf("%d-%d", b.number, b.orders), Account: pick(b.random, b.accounts),
		Amount: 1 + b.random.Int64N(9999),
	}
}

// purchase uses one key: for one request, for several of the same order, or wrongly for two orders.
func (b *buyer) purchase(ctx context.Context) error {
	key, orders := b.newKey(), []order{b.newOrder()}
	switch b.random.IntN(8) {
	case 0, 1: // the button was pressed several times
		for range 1 + b.random.IntN(3) {
			orders = append(orders, orders[0])
		}
	case 2:
		orders = append(orders, b.newOrder())
	}
	won, first, err := b.settle(ctx, key, orders)
	if err != nil {
		return err
	}
	switch b.random.IntN(6) {
	case 0: // somebody comes back later
		a, err := b.send(ctx, key, won)
		if err != nil {
			return err
		}
		if a.status != first.status || a.body != first.body || !a.replayed {
			return fmt.Errorf("invoice %s: repeated later: status %d after %d, replayed: %t",
				won.Invoice, a.status, first.status, a.replayed)
		}
	case 1:
		other := b.newOrder()
		a, err := b.send(ctx, key, other)
		if err != nil {
			return err
		}
		if a.status != http.StatusUnprocessableEntity {
			return fmt.Errorf("invoice %s: another order under its key: status %d", won.Invoice, a.status)
		}
		b.refuse(other)
	}
	return nil
}

// settle sends orders under one key at once. One of them wins: all requests for it get the same answer, the
// others 422.
func (b *buyer) settle(ctx context.Context, key string, orders []order) (won order, first answer, err error) {
	answers, errs := make([]answer, len(orders)), make([]error, len(orders))
	var all sync.WaitGroup
	for i, o := range orders {
		all.Go(func() { answers[i], errs[i] = b.send(ctx, key, o) })
	}
	all.Wait()
	for i, a := range answers {
		if errs[i] != nil {
			return won, first, errs[i]
		}
		if first.status == 0 && a.status != http.StatusUnprocessableEntity {
			won, first = orders[i], a
		}
	}
	if first.status == 0 {
		return won, first, fmt.Errorf("invoice %s: its key is another's", orders[0].Invoice)
	}
	for i, a := range answers {
		if orders[i] != won && a.status == http.StatusUnprocessableEntity {
			b.refuse(orders[i])
		} else if orders[i] != won || a.status != first.status || a.body != first.body {
			return won, first, fmt.Errorf("key %s: status %d for invoice %s, and %d for %s",
				key, first.status, won.Invoice, a.status, orders[i].Invoice)
		}
	}
	if first.status == http.StatusPaymentRequired {
		b.refuse(won)
		return won, first, nil
	}
	return won, first, b.accept(won, first)
}

// enough says that there is something to count, which on a busy machine takes a while.
func (c *clients) enough(kinds int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return kinds >= 3 && len(c.accepted) > 20 && len(c.refused) > 0
}

func (b *buyer) refuse(o order) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused[o.Invoice] = true
}

func (b *buyer) accept(o order, a answer) error {
	var p payment
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.order != o || p.Merchant != b.merchant() {
		return fmt.Errorf("invoice %s: the answer is another one's", o.Invoice)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accepted[o.Invoice] = p
	return nil
}

// send asks until it gets a final answer.
func (b *buyer) send(ctx context.Context, key string, o order) (answer, error) {
	for {
		a, err := b.ask(ctx, key, o)
		switch {
		case ctx.Err() != nil:
			return a, fmt.Errorf("invoice %s: no answer: %w", o.Invoice, ctx.Err())
		case err != nil, a.status == http.StatusConflict, a.status == http.StatusServiceUnavailable:
			pause(ctx, rand.N(200*time.Millisecond)) // nobody knows yet
		case a.status == http.StatusCreated, a.status == http.StatusPaymentRequired,
			a.status == http.StatusUnprocessableEntity:
			return a, nil
		default:
			return a, fmt.Errorf("invoice %s: status %d", o.Invoice, a.status)
		}
	}
}

// ask is one call of kit's client, which itself repeats it a few times.
func (b *buyer) ask(ctx context.Context, key string, o order) (a answer, err error) {
	body, err := json.Marshal(o)
	if err != nil {
		return a, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://payments.invalid/payments", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(httpkey.Header, key)
	r.SetBasicAuth(b.merchant(), "")
	resp, err := b.http.Do(r)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close() //nolint:errcheck // it is in memory
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(text), resp.Header.Get(httpkey.ReplayedHeader) != ""}, err
}

// fleet sends each request to one of the servers, and hangs up when it takes too long, now and then very soon.
type fleet struct {
	addrs []string
	base  *http.Transport
	sent  atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (f *fleet) RoundTrip(r *http.Request) (*http.Response, error) {
	f.sent.Add(1)
	patience := 4 * time.Second
	if rand.IntN(8) == 0 {
		patience = rand.N(30 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	r = r.Clone(ctx)
	r.URL.Host = f.addrs[rand.IntN(len(f.addrs))]
	resp, err := f.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return resp, nil
}
