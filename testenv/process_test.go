package testenv_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// TestHelper_StartAndHang is no test: it is the child of TestChildrenDie.
func TestHelper_StartAndHang(t *testing.T) {
	if os.Getenv("TESTENV_HANG") == "" {
		t.Skip("runs as a child of TestChildrenDie")
	}
	pg := testenv.StartPostgres(t, 18, testenv.Config{})
	kafka := testenv.StartKafka(t, testenv.KafkaConfig{})
	sleep := testenv.StartProcess(t, testenv.Command{Path: "/bin/sleep", Args: []string{"600"}})
	fmt.Println("memory:", sharedMemory(t, pg.Dir), "started:", pg.PID(), kafka.BrokerPID(0), sleep.PID())
	<-t.Context().Done()
}

func TestChildrenDie(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	testenv.Postgres(t, 18) // what the child starts is fetched before, which may take its time
	testenv.Kafka(t)
	child := testenv.StartProcess(t, testenv.Command{
		Path: self, Args: []string{"-test.run", "^TestHelper_StartAndHang$"},
		Env: map[string]string{
			"TESTENV_HANG": "1", "WALRELAY_TESTENV_CACHE": os.Getenv("WALRELAY_TESTENV_CACHE"),
			"XDG_CACHE_HOME": os.Getenv("XDG_CACHE_HOME"),
		},
	})
	child.WaitForLog(t, "started:", 5*time.Minute)
	memory, list, _ := strings.Cut(child.Stdout(), "started: ")
	id, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(memory, "memory:")))
	require.NoError(t, err)
	var pids []int
	for field := range strings.FieldsSeq(list) {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, 0), "runs before")
		pids = append(pids, pid)
	}
	require.Len(t, pids, 3)

	child.Kill(t)
	for _, pid := range pids {
		require.Eventually(t, func() bool { return !testenv.Alive(pid) }, 30*time.Second, 10*time.Millisecond)
	}
	require.Eventually(t, func() bool { // what the server's other processes are attached to stays until they have ended
		sweeper := exec.CommandContext(t.Context(), self, "-test.run", "^TestHelper_Sweep$")
		sweeper.Env = append(os.Environ(), "TESTENV_SWEEP=1")
		out, err := sweeper.CombinedOutput()
		require.NoError(t, err, string(out))
		return !exists(id)
	}, 30*time.Second, 10*time.Millisecond)
}

// TestHelper_Sweep is no test: it is another child of TestChildrenDie. A process sweeps before it has a directory.
func TestHelper_Sweep(t *testing.T) {
	if os.Getenv("TESTENV_SWEEP") == "" {
		t.Skip("runs as a child of TestChildrenDie")
	}
	testenv.Sweep(t)
}

func TestProcess(t *testing.T) {
	t.Parallel()
	script := func(text string) *testenv.Process {
		return testenv.StartProcess(t, testenv.Command{
			Path: "/bin/sh", Args: []string{"-c", text}, Env: map[string]string{"WORD": "seen"},
		})
	}
	p := script(`trap 'echo caught >&2; exit 7' TERM; echo out $WORD; while :; do sleep 0.05; done`)
	p.WaitForLog(t, "out seen", time.Minute)
	require.True(t, p.Running())
	require.Empty(t, p.Log())
	p.Signal(t, syscall.SIGTERM)
	require.Equal(t, 7, p.Wait(t, time.Minute))
	require.Equal(t, "caught\n", p.Log())

	p = script("exec sleep 600")
	p.Kill(t)
	require.Equal(t, -1, p.Wait(t, time.Second))
}
