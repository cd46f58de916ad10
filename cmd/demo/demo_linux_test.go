package main

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// stand is a place where the demo runs: whatever it leaves behind is found there.
type stand struct {
	tmp     string // its temporary directory
	program string
	relay   string
}

func TestDemo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("fetches PostgreSQL and takes seconds")
	}
	// The program is built without the race detector, under which unpacking takes a minute.
	program := filepath.Join(t.TempDir(), "demo")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)

	for name, test := range map[string]func(*testing.T, *stand){
		"outage loses nothing":               outageLosesNothing,
		"interrupt ends in order":            interruptEndsInOrder,
		"second interrupt waits for nothing": secondInterruptWaitsForNothing,
		"interrupt during start":             interruptDuringStart,
		"killed takes its children along":    killedTakesItsChildrenAlong,
		"walrelay is killed":                 walrelayIsKilled,
		"walrelay is missing":                walrelayIsMissing,
		"user's servers":                     usersServers,
		"brokers are absent":                 brokersAreAbsent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// t.TempDir is closed to the user that PostgreSQL runs as.
			tmp, err := os.MkdirTemp("", "walrelay-demotest-") //nolint:usetesting // another user must reach it
			require.NoError(t, err)
			require.NoError(t, os.Chmod(tmp, 0o755))
			t.Cleanup(func() { require.NoError(t, os.RemoveAll(tmp)) })
			test(t, &stand{tmp: tmp, program: program, relay: testenv.Binary(t)})
		})
	}
}

func (s *stand) start(t *testing.T, env map[string]string, args ...string) *testenv.Process {
	t.Helper()
	all := map[string]string{"TMPDIR": s.tmp}
	maps.Copy(all, env)
	return testenv.StartProcess(t, testenv.Command{
		Path: s.program, Args: append([]string{"--walrelay", s.relay}, args...), Env: all,
	})
}

// requireNothingLeft looks for files and for processes that know the temporary directory.
func (s *stand) requireNothingLeft(t *testing.T) {
	t.Helper()
	require.Empty(t, s.processes())
	left, err := os.ReadDir(s.tmp)
	require.NoError(t, err)
	require.Empty(t, left)
}

// processes are those that have the temporary directory in their arguments or environment.
func (s *stand) processes() map[int]string {
	found := make(map[int]string)
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		command, _ := os.ReadFile(file)
		environment, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "environ"))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && strings.Contains(string(command)+string(environment), s.tmp) {
			found[pid] = strings.ReplaceAll(string(command), "\x00", " ")
		}
	}
	return found
}

// patience is for a machine that starts several demos at once, and may fetch PostgreSQL for each.
const patience = 5 * time.Minute

var (
	// sold is a line of a demo whose shop is open: one comes each second, or later.
	sold     = regexp.MustCompile(`\d:\d\d  committed [1-9]`)
	lastLine = regexp.MustCompile(`^committed (\d+) delivered (\d+) lost 0 duplicates \d+$`)
)

// awaitSale waits until the shop has sold something.
func awaitSale(t *testing.T, p *testenv.Process) {
	t.Helper()
	require.Eventually(t, func() bool {
		return sold.MatchString(p.Stdout()) || !p.Running()
	}, patience, 20*time.Millisecond)
	require.True(t, p.Running(), "%s\n%s", p.Stdout(), p.Log())
}

// requireAllArrived reads the last line.
func requireAllArrived(t *testing.T, p *testenv.Process) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(p.Stdout(), "\n"), "\n")
	found := lastLine.FindStringSubmatch(lines[len(lines)-1])
	require.NotNil(t, found, "%s\n%s", p.Stdout(), p.Log())
	require.Equal(t, found[1], found[2])
	require.NotEqual(t, "0", found[1])
}

func outageLosesNothing(t *testing.T, s *stand) {
	t.Helper()
	p := s.start(t, nil, "--for", "15s") // the broker is away for a fifth of it
	require.Equal(t, 0, p.Wait(t, patience), "%s\n%s", p.Stdout(), p.Log())
	requireAllArrived(t, p)
	require.Contains(t, p.Stdout(), "broker DOWN")
	require.Regexp(t, `outages +1 of the broker, [1-9]\d*\.\d s in all`, p.Stdout())
	require.Regexp(t, `rolled back +[1-9]\d* events, of which 0 arrived`, p.Stdout())
	s.requireNothingLeft(t)
}

func interruptEndsInOrder(t *testing.T, s *stand) {
	t.Helper()
	p := s.start(t, nil, "--for", "10m", "--no-outage")
	awaitSale(t, p)
	p.Signal(t, syscall.SIGINT)
	require.Equal(t, 0, p.Wait(t, patience), "%s\n%s", p.Stdout(), p.Log())
	requireAllArrived(t, p)
	s.requireNothingLeft(t)
}

// The second signal may come in the middle of an outage, when walrelay could not end in order.
func secondInterruptWaitsForNothing(t *testing.T, s *stand) {
	t.Helper()
	p := s.start(t, nil, "--for", "10m")
	awaitSale(t, p)
	p.Signal(t, syscall.SIGINT)
	p.Signal(t, syscall.SIGTERM)
	p.Wait(t, patience)
	s.requireNothingLeft(t)
}

func interruptDuringStart(t *testing.T, s *stand) {
	t.Helper()
	// With this program the start goes on for as long as the test needs.
	s.relay = filepath.Join(t.TempDir(), "walrelay")
	require.NoError(t, os.WriteFile(s.relay, []byte("#!/bin/sh\nexec sleep 600\n"), 0o700))
	p := s.start(t, nil)
	p.WaitForLog(t, "starting PostgreSQL", patience)
	p.Signal(t, syscall.SIGTERM)
	require.Equal(t, 1, p.Wait(t, patience))
	s.requireNothingLeft(t)
}

// A command that is given up leaves nobody behind who goes on writing.
func TestRunToEnd_TakesChildrenAlong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		script := "sh -c 'echo $$ >pid.new; mv pid.new pid; exec sleep 600' & wait"
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = dir
		done <- runToEnd(ctx, cmd, filepath.Join(dir, "log"))
	}()
	var pid string
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		pid = strings.TrimSpace(string(text))
		return err == nil
	}, patience, 5*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	command, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	require.Empty(t, string(command), "what has ended has none")
}

func walrelayIsKilled(t *testing.T, s *stand) {
	t.Helper()
	p := s.start(t, nil, "--for", "10m")
	awaitSale(t, p)
	for pid, command := range s.processes() {
		if strings.HasPrefix(command, s.relay+" run") {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	require.Equal(t, 1, p.Wait(t, patience))
	require.Contains(t, p.Log(), "walrelay has ended: signal: killed")
	require.Regexp(t, `\ncommitted \d+ delivered \d+ lost \d+ duplicates \d+\n$`, p.Stdout())
	s.requireNothingLeft(t)
}

// What a killed demo leaves is a directory, which the next one removes.
func killedTakesItsChildrenAlong(t *testing.T, s *stand) {
	t.Helper()
	p := s.start(t, nil)
	awaitSale(t, p)
	require.Greater(t, len(s.processes()), 2)
	p.Kill(t)
	require.Eventually(t, func() bool { return len(s.processes()) == 0 }, patience, 50*time.Millisecond)

	p = s.start(t, nil, "--walrelay", "/bin/false")
	require.Equal(t, 1, p.Wait(t, patience))
	require.Contains(t, p.Log(), "run false")
	s.requireNothingLeft(t)
}

func walrelayIsMissing(t *testing.T, s *stand) {
	t.Helper()
	p := s.start(t, nil, "--walrelay", filepath.Join(s.tmp, "absent"))
	require.Equal(t, 1, p.Wait(t, patience))
	require.Contains(t, p.Log(), "go build -o bin/walrelay")
	s.requireNothingLeft(t)
}

// On servers of the user nothing stays: no database, no slot, no topic.
func usersServers(t *testing.T, s *stand) {
	t.Helper()
	db := testenv.Postgres(t, 18).Database(t)
	brokers := testenv.Kafka(t).Addrs()

	const things = `SELECT (SELECT count(*) FROM pg_database WHERE datname LIKE 'walrelay_demo_%') +
		(SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'walrelay_demo_%')`
	count := func() (n int) {
		require.NoError(t, db.QueryRow(t, things).Scan(&n))
		return n
	}
	env := map[string]string{
		"WALRELAY_DATABASE_URL":  db.DSN,
		"WALRELAY_KAFKA_BROKERS": strings.Join(brokers, ","),
	}
	p := s.start(t, env, "--for", "10m")
	awaitSale(t, p)
	require.Equal(t, 2, count())
	p.Signal(t, syscall.SIGINT)
	require.Equal(t, 0, p.Wait(t, patience), "%s\n%s", p.Stdout(), p.Log())
	requireAllArrived(t, p)
	require.NotContains(t, p.Stdout(), "DOWN")
	require.Zero(t, count())
	requireNoTopics(t, brokers)
	s.requireNothingLeft(t)

	// A demo that is not given time drops its things as well.
	p = s.start(t, env)
	awaitSale(t, p)
	p.Signal(t, syscall.SIGINT)
	p.Signal(t, syscall.SIGTERM)
	p.Wait(t, patience)
	require.Zero(t, count())
	requireNoTopics(t, brokers)
	s.requireNothingLeft(t)
}

func requireNoTopics(t *testing.T, addrs []string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	require.NoError(t, err)
	defer client.Close()
	require.Eventually(t, func() bool { // the broker learns of it after the controller has answered
		topics, err := kadm.NewClient(client).ListTopics(t.Context())
		require.NoError(t, err)
		return !slices.ContainsFunc(topics.Names(), func(name string) bool {
			return strings.HasPrefix(name, "walrelay_demo_")
		})
	}, patience, 20*time.Millisecond)
}

// A broker that nobody answers for is an error soon, not a wait for ever.
func brokersAreAbsent(t *testing.T, s *stand) {
	t.Helper()
	p := s.start(t, map[string]string{"WALRELAY_KAFKA_BROKERS": testenv.Addr(t)})
	require.Equal(t, 1, p.Wait(t, patience))
	require.Contains(t, p.Log(), "create topic")
	s.requireNothingLeft(t)
}
