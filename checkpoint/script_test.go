package checkpoint_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata/*.txt")

// TestTracker_Scripts runs testdata/*.txt. Every line is a verb and, behind "=>", what became of it;
// -update writes the latter anew. Lines that start with # are prose.
//
//	start LSN [events=N] [bytes=N]   a session begins at the slot's confirmed_flush_lsn
//	begin HH:MM:SS                   Begin with this commit time
//	add BYTES...                     one event each; answers with their sequences
//	commit FROM-END                  the commit record's bounds; its message was received
//	receive LSN                      a position seen in the head of a message
//	keepalive LSN                    a position seen in a keepalive: received, and adopted if it may be
//	ack SEQ...                       acknowledgements, in this order
//	restart                          the session dies; a new one begins at the confirmed position, and
//	                                 the server repeats the commits whose record starts there or later
//
// Each answer ends with the position that would be confirmed to the server now.
func TestTracker_Scripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			got := runScript(t, string(text))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(text), got)
		})
	}
}

func runScript(t *testing.T, text string) string {
	t.Helper()
	var s script
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			fmt.Fprintln(&out, line)
			continue
		}
		command, _, _ := strings.Cut(line, "=>")
		command = strings.TrimSpace(command)
		answer, err := s.do(strings.Fields(command))
		if err != nil {
			answer = "error: " + err.Error() + "; "
		}
		fmt.Fprintf(&out, "%-36s => %s%s\n", command, answer, s.state())
	}
	return out.String()
}

// script is a session and its server, as far as positions go.
type script struct {
	tracker   *checkpoint.Tracker
	window    checkpoint.Window
	commits   []pglogrepl.LSN // where the record of each commit starts
	confirmed pglogrepl.LSN
}

func (s *script) do(words []string) (answer string, err error) {
	verb, args := words[0], words[1:]
	if s.tracker == nil && verb != "start" {
		return "", errors.New("a script begins with start")
	}
	switch verb {
	case "start":
		return "", s.start(args)
	case "begin":
		at, err := time.Parse(time.TimeOnly, args[0])
		if err != nil {
			return "", err
		}
		return "", s.tracker.Begin(at)
	case "add":
		return s.add(args)
	case "commit":
		return "", s.commit(args[0])
	case "receive":
		lsn, err := pglogrepl.ParseLSN(args[0])
		s.tracker.Receive(lsn)
		return "", err
	case "keepalive":
		return s.keepalive(args[0])
	case "ack":
		return "", s.ack(args)
	case "restart":
		return s.restart(), nil
	}
	return "", fmt.Errorf("no such verb: %s", verb)
}

func (s *script) start(args []string) (err error) {
	s.window = checkpoint.Window{Events: 1000, Bytes: 1 << 20}
	for _, arg := range args[1:] {
		if n, ok := strings.CutPrefix(arg, "events="); ok {
			s.window.Events, err = strconv.Atoi(n)
		} else if n, ok := strings.CutPrefix(arg, "bytes="); ok {
			s.window.Bytes, err = strconv.ParseInt(n, 10, 64)
		}
		if err != nil {
			return err
		}
	}
	s.confirmed, err = pglogrepl.ParseLSN(args[0])
	s.tracker = checkpoint.NewTracker(s.confirmed, s.window)
	return err
}

func (s *script) add(args []string) (string, error) {
	var seqs []string
	for _, arg := range args {
		bytes, err := strconv.Atoi(arg)
		if err != nil {
			return "", err
		}
		seq, err := s.tracker.Add(bytes)
		if err != nil {
			return "", err
		}
		seqs = append(seqs, strconv.FormatUint(seq, 10))
	}
	return "seq " + strings.Join(seqs, " ") + "; ", nil
}

func (s *script) commit(bounds string) error {
	from, to, _ := strings.Cut(bounds, "-")
	start, err := pglogrepl.ParseLSN(from)
	if err != nil {
		return err
	}
	end, err := pglogrepl.ParseLSN(to)
	if err != nil {
		return err
	}
	s.tracker.Receive(end)
	if err := s.tracker.Commit(end); err != nil {
		return err
	}
	if !slices.Contains(s.commits, start) { // not one that came again
		s.commits = append(s.commits, start)
	}
	return nil
}

func (s *script) keepalive(arg string) (string, error) {
	lsn, err := pglogrepl.ParseLSN(arg)
	if err != nil {
		return "", err
	}
	s.tracker.Receive(lsn)
	if s.tracker.Adopt(lsn) {
		return "adopted; ", nil
	}
	return "not adopted; ", nil
}

func (s *script) ack(args []string) error {
	seqs := make([]uint64, len(args))
	for i, arg := range args {
		var err error
		if seqs[i], err = strconv.ParseUint(arg, 10, 64); err != nil {
			return err
		}
	}
	return s.tracker.Settle(seqs)
}

func (s *script) restart() string {
	s.tracker = checkpoint.NewTracker(s.confirmed, s.window)
	var again []string
	for _, start := range s.commits {
		if start >= s.confirmed { // SnapBuildXactNeedsSkip, from the other side
			again = append(again, start.String())
		}
	}
	if again == nil {
		return "no commit comes again; "
	}
	return "commits that come again: " + strings.Join(again, ", ") + "; "
}

// state confirms the frontier, as a status update would, and describes the tracker.
func (s *script) state() string {
	if s.tracker == nil {
		return ""
	}
	s.confirmed = s.tracker.Frontier()
	text := "confirmed " + s.confirmed.String()
	if events, bytes := s.tracker.InFlight(); events > 0 {
		text += fmt.Sprintf(", in flight %d (%d bytes)", events, bytes)
	}
	if at, ok := s.tracker.Oldest(); ok {
		text += ", oldest " + at.Format(time.TimeOnly)
	}
	if s.tracker.Full() {
		text += ", full"
	}
	return text
}
