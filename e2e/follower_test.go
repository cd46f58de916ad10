package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// follower is a consumer that keeps the highest position of each partition, as docs/guarantees.md
// tells consumers to.
type follower struct {
	*setup
	consumer *testenv.Consumer
	events   int
	fence    map[int32]string
	seen     map[string]bool // event ids
	ledger   *judge.Ledger   // of what was seen
}

func follow(s *setup) *follower {
	return &follower{
		setup: s, consumer: s.consume(s.topic), fence: map[int32]string{}, seen: map[string]bool{},
		ledger: judge.NewLedger(),
	}
}

// number returns the number of a new event.
func (f *follower) number() int {
	f.events++
	return f.events
}

// skips inserts an event that will not be delivered.
func (f *follower) skips() { f.insert(f.number(), "k", `{"skipped": true}`) }

// writes inserts an event that is looked for in the end.
func (f *follower) writes() {
	f.t.Helper()
	n := f.number()
	f.insert(n, "k", `{}`)
	require.NoError(f.t, f.ledger.Commit(f.event(eventID(n), "k", `{}`)))
}

// delivers inserts an event and waits until it arrives.
func (f *follower) delivers() *kgo.Record {
	f.t.Helper()
	n := f.number()
	f.insert(n, "k", `{}`)
	return f.sees(n)
}

// sees waits until the event arrives. Every record on the way is either beyond the fence or was seen
// before, and none was to be skipped.
func (f *follower) sees(n int) *kgo.Record {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	for {
		record, err := f.consumer.Next(ctx)
		require.NoError(f.t, err, "event %d does not arrive", n)
		id, position := judge.Header(record, "id"), judge.Header(record, "walrelay-position")
		require.NotContains(f.t, string(record.Value), "skipped")
		if position <= f.fence[record.Partition] {
			require.True(f.t, f.seen[id], "event %s at %s is new, but behind %s", id, position, f.fence[record.Partition])
		} else {
			f.fence[record.Partition] = position
		}
		f.seen[id] = true
		if id == eventID(n) {
			require.NoError(f.t, f.ledger.Commit(f.event(id, "k", `{}`)))
			return record
		}
	}
}

// goesOn gives the operator's word, and expects that the next start delivers under the next epoch.
func (f *follower) goesOn() *testenv.Process {
	f.t.Helper()
	before := f.registered("epoch")
	f.idle()
	f.run("stream", "new-epoch", f.slot)
	relay := f.relay()
	record := f.delivers()
	epoch, err := strconv.ParseUint(f.registered("epoch"), 10, 32)
	require.NoError(f.t, err)
	require.NotEqual(f.t, before, strconv.FormatUint(epoch, 10))
	require.Equal(f.t, fmt.Sprintf("%08X", epoch), judge.Header(record, "walrelay-position")[:8])
	return relay
}

// free makes the relay let go of its slot: by freezing it and cutting its connection, or by stopping it.
func (s *setup) free(relay *testenv.Process, freeze bool) {
	s.t.Helper()
	if !freeze {
		s.stop(relay)
		s.idle()
		return
	}
	relay.Signal(s.t, syscall.SIGSTOP)
	s.cut()
}

// stop ends the relay in good order.
func (s *setup) stop(relay *testenv.Process) {
	s.t.Helper()
	relay.Signal(s.t, terminate)
	require.Equal(s.t, 0, relay.Wait(s.t, wait), relay.Log())
}

// cut ends the server's side of the stream. Somebody may stream again at once, by another process of the server.
func (s *setup) cut() {
	s.t.Helper()
	walsender := s.walsender()
	require.NotZero(s.t, walsender)
	s.db.Exec(s.t, "SELECT pg_terminate_backend($1::int)", walsender)
	require.Eventually(s.t, func() bool { return s.walsender() != walsender }, wait, tick)
}

// idle waits until the server has noticed that nobody streams any more.
func (s *setup) idle() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		var active bool
		require.NoError(s.t, s.db.QueryRow(s.t,
			"SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active)", s.slot).Scan(&active))
		return !active
	}, wait, tick)
}

// dropSlot is what some remedies ask for.
func (s *setup) dropSlot() {
	s.t.Helper()
	s.idle()
	s.db.Exec(s.t, "SELECT pg_drop_replication_slot($1)", s.slot)
}

// registered is a column of the stream's row in the registry, as text.
func (s *setup) registered(column string) (value string) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRow(s.t, "SELECT "+column+"::text FROM walrelay.streams WHERE name = $1", s.slot).
		Scan(&value))
	return value
}

// insertInto is insert for another aggregate type.
func (s *setup) insertInto(aggregate string, n int, key, payload string) {
	s.t.Helper()
	s.db.Exec(s.t, strings.Replace(insertSQL, "'orders'", "'"+aggregate+"'", 1), eventID(n), key, payload)
}

// fails runs a command that must end with the code, and returns what it wrote.
func (s *setup) fails(code int, args ...string) string {
	s.t.Helper()
	p := testenv.StartProcess(s.t, testenv.Command{Path: testenv.Binary(s.t), Args: args, Env: s.env})
	require.Equal(s.t, code, p.Wait(s.t, wait), "%v: %s%s", args, p.Stdout(), p.Log())
	return p.Stdout() + p.Log()
}

// fatal waits for the end of a relay that cannot go on. It must end with exit code 1, one message,
// which has all the parts, and no storm of attempts before.
func fatal(t *testing.T, relay *testenv.Process, parts ...string) string {
	t.Helper()
	require.Equal(t, 1, relay.Wait(t, wait), relay.Log())
	var messages []string
	attempts := 0
	for line := range strings.Lines(relay.Log()) {
		var entry struct{ Level, Message, Error string }
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		switch {
		case entry.Level == "error":
			require.Equal(t, "stream ended", entry.Message)
			messages = append(messages, entry.Error)
		case entry.Message == "stream interrupted, trying again":
			attempts++
		}
	}
	require.Len(t, messages, 1, relay.Log())
	require.LessOrEqual(t, attempts, 2, relay.Log())
	for _, part := range parts {
		require.Contains(t, messages[0], part)
	}
	return messages[0]
}
