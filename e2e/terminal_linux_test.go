package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/walrelay/walrelay/testenv"
)

// terminal is a command of the binary on a terminal of its own.
type terminal struct {
	cmd    *exec.Cmd
	master *os.File

	mu     sync.Mutex
	screen strings.Builder
}

// onTerminal starts a command, which is killed at the end of the test.
func (s *setup) onTerminal(args ...string) *terminal {
	s.t.Helper()
	t := s.t
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	fd := int(master.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	defer func() { _ = slave.Close() }()

	term := &terminal{cmd: exec.Command(testenv.Binary(t), args...), master: master}
	for name, value := range s.env {
		term.cmd.Env = append(term.cmd.Env, name+"="+value)
	}
	term.cmd.Stdin, term.cmd.Stdout, term.cmd.Stderr = slave, slave, slave
	require.NoError(t, term.cmd.Start())
	var reading sync.WaitGroup
	reading.Go(func() {
		chunk := make([]byte, 4096)
		for {
			n, err := master.Read(chunk)
			term.mu.Lock()
			term.screen.Write(chunk[:n])
			term.mu.Unlock()
			if err != nil { // EIO once nobody has the other end
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = term.cmd.Process.Kill()
		_ = term.cmd.Wait()
		reading.Wait()
		_ = master.Close()
	})
	return term
}

func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.screen.String()
}

// On a terminal the status is drawn anew every second, until it is interrupted.
func TestStatus_Live(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
	f := follow(s)
	s.relay()
	f.delivers()
	term := s.onTerminal("status")
	require.Eventually(t, func() bool { return strings.Count(term.text(), "\x1b[H\x1b[2J") >= 3 }, wait, tick)
	require.Contains(t, term.text(), "lag           ")
	s.run("stream", "pause")
	require.Eventually(t, func() bool { return strings.Contains(term.text(), "state         paused") }, wait, tick)
	require.NoError(t, term.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, term.cmd.Wait())
}

// On a terminal the slot's name has to be typed.
func TestSlotWork_Asks(t *testing.T) {
	t.Parallel()
	s := newSetup(t, testenv.Postgres(t, lastMajor()), testenv.Kafka(t), 1)
	s.run("slot", "create")
	answers := func(answer string) (code int, text string) {
		term := s.onTerminal("slot", "drop")
		require.Eventually(t, func() bool { return strings.Contains(term.text(), "to go on: ") }, wait, tick)
		_, err := term.master.WriteString(answer + "\n")
		require.NoError(t, err)
		_ = term.cmd.Wait()
		return term.cmd.ProcessState.ExitCode(), term.text()
	}
	code, _ := answers("yes")
	require.Equal(t, 1, code)
	require.Contains(t, s.run("slot", "show"), s.slot)
	code, text := answers(s.slot)
	require.Equal(t, 0, code, text)
	require.Contains(t, s.fails(1, "slot", "show"), "does not exist")
}
