package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/e2e/judge"
	"github.com/walrelay/walrelay/testenv"
)

// newBad is a setup whose events come in that way.
func newBad(t *testing.T, shape badShape) *setup {
	t.Helper()
	s := newBare(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
	s.db.Exec(t, badTable)
	s.run("migrate", "up")
	s.run("migrate", "up", "--kit")
	s.cluster.CreateTopic(t, s.dead(), 1, nil)
	s.set("WALRELAY_DEAD_LETTER_TOPIC", s.dead())
	for name, value := range shape.env {
		s.set(name, strings.ReplaceAll(value, "PREFIX", s.prefix))
	}
	return s
}

// What cannot be an event of its shape is a dead letter whose reason names the column or member, and nothing of what it
// holds; a tail shows it, its letter is only redriven if key and value are those of the event, and whoever reads
// the table tells the same. Nothing is in the way of what comes after it.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for _, shape := range badShapes() {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			s := newBad(t, shape)
			s.set("WALRELAY_ON_POISON", "dead-letter")
			relay := s.relay()
			tail := s.tail("--limit", fmt.Sprint(2*len(shape.inputs)))
			events, letters := s.consume(s.topic), s.consume(s.dead())
			var good []string
			for i, input := range shape.inputs {
				s.db.Exec(t, "BEGIN; "+input.sql+"; COMMIT")
				good = append(good, fmt.Sprint("good ", i))
				s.db.Exec(t, fmt.Sprintf(shape.good, good[i]))
			}
			require.Equal(t, good, delivered(events.WaitFor(t, len(good), wait)))
			for i, letter := range letters.WaitFor(t, len(shape.inputs), wait) {
				require.Equal(t, shape.inputs[i].id, judge.Header(letter, "id"))
				require.Contains(t, judge.Header(letter, "walrelay-dead-letter-reason"), shape.inputs[i].reason)
			}
			s.caughtUp()
			rows, err := s.db.Conn.Query(t.Context(), `SELECT event_id || ' ' || action || ': ' || reason
				FROM walrelay.dead_letters WHERE stream = $1 ORDER BY position`, s.slot)
			require.NoError(t, err)
			recorded, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			require.Len(t, recorded, len(shape.inputs))
			require.Equal(t, 0, tail.Wait(t, wait), tail.Log())
			shown := printed(t, tail, 2*len(shape.inputs))
			for i, input := range shape.inputs {
				require.Contains(t, recorded[i], input.id+" dead-lettered: "+input.reason)
				require.Contains(t, shown[2*i], " id="+input.id+" ")
				require.Contains(t, shown[2*i], " FAULT: "+input.reason)
				require.NotContains(t, shown[2*i+1], "FAULT")
			}
			s.redrives(shape.inputs)
			output := relay.Log() + tail.Stdout()
			if shape.good == badRow {
				output += s.readsBad(relay, shape.inputs)
			}
			require.NotContains(t, output, "secret")
		})
	}
}

// With the default policy each of them stops the stream where it is, until a verdict is given, in either delivery mode;
// before it and after it nothing is missing.
func TestBadInput_Stop(t *testing.T) {
	t.Parallel()
	for n, shape := range badShapes() {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			s := newBad(t, shape)
			if n%2 == 0 {
				s.exactly()
			}
			relay := s.relay()
			events, letters := s.consume(s.topic), s.consume(s.dead())
			for i, input := range shape.inputs {
				s.db.Exec(t, "BEGIN; "+input.sql+"; COMMIT")
				good := fmt.Sprint("good ", i)
				s.db.Exec(t, fmt.Sprintf(shape.good, good))
				s.ready(503, "stuck", input.id, input.reason, "--verdict retry|skip|dead-letter")
				_, body := s.get("/readyz")
				_, release, found := strings.Cut(body, "walrelay stream release ")
				require.True(t, found, body)
				verdict, action := "skip", "skipped"
				if i%2 == 0 {
					verdict, action = "dead-letter", "dead-lettered"
				}
				s.run("stream", "release", release[:checkpoint.PositionLen], "--verdict", verdict)
				brings(t, events, good)
				if verdict == "dead-letter" {
					brings(t, letters, input.id)
				}
				s.ready(200)
				require.Eventually(t, func() bool {
					var recorded string
					err := s.db.QueryRow(t, "SELECT action FROM walrelay.dead_letters WHERE event_id = $1", input.id).Scan(&recorded)
					return err == nil && recorded == action
				}, wait, tick)
			}
			require.NotContains(t, relay.Log(), "secret")
		})
	}
}

// brings reads up to an event. A verdict begins a session, which repeats what was not confirmed before.
func brings(t *testing.T, consumer *testenv.Consumer, id string) {
	t.Helper()
	for delivered(consumer.WaitFor(t, 1, wait))[0] != id {
	}
}

// redrives expects that all letters are redriven but those that stay.
func (s *setup) redrives(inputs []badInput) {
	t := s.t
	t.Helper()
	output := s.fails(1, "deadletters", "redrive", "--all", "--to", s.topic)
	for _, input := range inputs {
		want := fmt.Sprintf("%q redriven", input.id)
		if input.stays != "" {
			want = fmt.Sprintf("%q stays: %s", input.id, input.stays)
		}
		require.Contains(t, output, want)
	}
}

// readsBad reads the rows of the table, by a replay and by the backfill of another stream, and returns what was said.
func (s *setup) readsBad(relay *testenv.Process, inputs []badInput) string {
	t := s.t
	t.Helper()
	output := s.fails(1, "replay", "--all", "--time-column", "")
	s.stop(relay)
	s.set("WALRELAY_SLOT", s.db.Slot(t))
	s.set("WALRELAY_BACKFILL", "true")
	log := s.relay().Log()
	lasting := 0
	for _, input := range inputs {
		if !input.lasts {
			require.NotContains(t, output, fmt.Sprintf("event %q", input.id))
			continue
		}
		lasting++
		require.Contains(t, output,
			fmt.Sprintf("event %q of table public.outbox cannot be delivered: %s", input.id, input.reason))
		require.Regexp(t, `left out.*"event_id":"`+input.id+`".*"reason":"`+input.reason, log)
	}
	require.Contains(t, output, fmt.Sprintf(" rows were published, %d cannot be delivered", lasting))
	require.Contains(t, log, fmt.Sprintf(`rows from before the slot were left out","stream":"%s","slot":"%[1]s","rows":%d`,
		s.env["WALRELAY_SLOT"], lasting))
	return output + log
}

// An id that is no text is the hex that PostgreSQL prints, wherever it is told or asked for.
func TestBytea_AsID(t *testing.T) {
	t.Parallel()
	s := newBare(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
	s.db.Exec(t, strings.Replace(badTable, "id text", "id bytea", 1))
	s.run("migrate", "up")
	s.set("WALRELAY_ON_POISON", "skip")
	s.relay()
	consumer := s.consume(s.topic)
	s.db.Exec(t, fmt.Sprintf(badRow, `\x00ff`))
	require.Equal(t, []string{`\x00ff`}, delivered(consumer.WaitFor(t, 1, wait)))
	s.db.Exec(t, strings.Replace(badHeader, "'headers'", `'\x5c'`, 1))
	s.caughtUp()
	var position string
	require.NoError(t, s.db.QueryRow(t, `SELECT position FROM walrelay.dead_letters WHERE event_id = '\x5c'`).
		Scan(&position))

	s.run("replay", "--id", `\x00ff`, "--time-column", "")
	require.Equal(t, []string{`\x00ff`}, delivered(consumer.WaitFor(t, 1, wait)))
	s.db.Exec(t, "UPDATE outbox SET headers = NULL")
	s.run("deadletters", "redrive", position) // from its row, which was put right
	require.Equal(t, []string{`\x5c`}, delivered(consumer.WaitFor(t, 1, wait)))
}
