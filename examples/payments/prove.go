package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/walrelay/walrelay/testenv"
)

// settleLimit is for each step after the faults, on a busy machine.
const settleLimit = 5 * time.Minute

// prove runs the application for a while, with everything going wrong, and prints the sums.
func prove(ctx context.Context, duration time.Duration, seed uint64, stdout, stderr io.Writer) error {
	var result *outcome
	ok := testenv.Perform(ctx, stderr, func(t testing.TB) {
		t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(testenv.Binary(t))) }) // testenv.Main does it in tests
		result = payAndCount(t, duration, seed)
	})
	if result == nil {
		return errors.New("no verdict")
	}
	if err := result.write(stdout); err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("the books do not agree, or something else went wrong: repeat with --seed %d", seed)
	}
	return nil
}

// outcome is what came of it.
type outcome struct {
	seed       uint64
	struck     map[string]int
	requests   int64
	refused    int
	records    int64 // in the topic; what is more than one for each payment, the relay has repeated
	duplicates int   // that the inbox has dropped, as far as the consumers lived to tell
	sums       sums
}

// payAndCount fails t for all that does not agree. A seed repeats its choices, but not the timing.
func payAndCount(t testing.TB, duration time.Duration, seed uint64) *outcome {
	t.Helper()
	t.Logf("seed %d, for %v", seed, duration)
	ctx := t.Context()
	w := newWorld(t, seed)
	defer w.endAll()

	c := newClients(w)
	stop := make(chan struct{})
	answering, cancel := context.WithTimeout(ctx, duration+2*settleLimit)
	wait := c.start(answering, seed, stop)
	defer func() { // when a server does not come back
		cancel()
		wait()
	}()
	o := &outcome{seed: seed, struck: w.breakThings(answering, duration, c.enough)}
	close(stop)
	wait()
	t.Logf("faults are over, all clients have their answers")
	err := w.settle(ctx, settleLimit)
	if err == nil {
		t.Logf("all is booked; the consumers now see every record once more")
		err = w.repeatAll(ctx, settleLimit)
	}
	if err != nil {
		t.Errorf("%v", err) // and count all the same
	}

	b, err := w.readBooks(ctx, c)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if o.records, err = w.records(ctx); err != nil {
		t.Fatalf("count records: %v", err)
	}
	faults := b.faults()
	for _, fault := range faults[:min(len(faults), 20)] {
		t.Errorf("%s", fault)
	}
	if len(faults) > 20 {
		t.Errorf("and %d more", len(faults)-20)
	}
	o.sums, o.requests, o.refused, o.duplicates = b.sums(), c.fleet.sent.Load(), len(b.refused), w.duplicates()
	return o
}

var dropped = regexp.MustCompile(`duplicates=(\d+)`)

// duplicates adds up what the consumers have logged.
func (w *world) duplicates() (sum int) {
	for _, s := range w.consumers {
		for _, found := range dropped.FindAllStringSubmatch(s.log(), -1) {
			n, _ := strconv.Atoi(found[1]) // digits
			sum += n
		}
	}
	return sum
}

func (o *outcome) write(w io.Writer) error {
	var struck []string
	for _, name := range slices.Sorted(maps.Keys(o.struck)) {
		struck = append(struck, fmt.Sprintf("%s %d", name, o.struck[name]))
	}
	_, err := fmt.Fprintf(w, "seed %d\nfaults: %s\n"+
		"requests %d, orders refused %d, records in Kafka %d, duplicates dropped %d\n",
		o.seed, strings.Join(struck, ", "), o.requests, o.refused, o.records, o.duplicates)
	if err != nil {
		return err
	}
	return o.sums.write(w)
}
