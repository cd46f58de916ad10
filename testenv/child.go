package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// child is a running process that dies with this one.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and was waited for
	err  error         // of cmd.Wait; read it after done
}

// startChild starts cmd so that the kernel kills it when this process ends in whatever way. The
// signal comes when the *thread* that forked ends (PR_SET_PDEATHSIG in prctl(2)), and Go ends a
// thread only with the goroutine that is locked to it; so that goroutine stays and waits.
func startChild(cmd *exec.Cmd) (*child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.Setpgid = true // the terminal's ^C is for the test alone
	cmd.WaitDelay = 5 * time.Second

	c := &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	return c, nil
}

// runChild starts cmd and waits for its end. The error is that of a failed start or exit.
func runChild(cmd *exec.Cmd) (*child, error) {
	c, err := startChild(cmd)
	if err != nil {
		return nil, err
	}
	<-c.done
	return c, c.err
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) exited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// signal is a no-op for a process that has ended.
func (c *child) signal(sig os.Signal) error {
	if err := c.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", c.pid(), err)
	}
	return nil
}

// stop sends a signal and waits for the end of the process.
func (c *child) stop(sig os.Signal, limit time.Duration) error {
	if err := c.signal(sig); err != nil {
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("process %d still runs %v after %v", c.pid(), limit, sig)
	}
}

// children lists the living child processes of a process (see proc_pid_stat(5)).
func children(parent int) []int {
	var pids []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		// pid (name) state ppid …; the name may hold anything.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// alive says whether a process runs; a zombie that nobody has waited for does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	return !bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z"))
}

// killInside ends the processes that work in a directory left by a dead test process. It is for
// those that the parent death signal did not reach: a postmaster's children which were paused.
func killInside(dir string) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(cwd, dir+"/") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// startLimit is how long a server may take until it serves, on a machine that starts several at once.
const startLimit = 3 * time.Minute

// poll calls cond every few milliseconds until it is true or the time is up.
func poll(limit time.Duration, cond func() bool) bool {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(limit); ; <-ticker.C {
		if cond() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// tail is the last lines of a log.
func tail(log []byte, lines int) []byte {
	all := bytes.SplitAfter(bytes.TrimSpace(log), []byte("\n"))
	return bytes.Join(all[max(0, len(all)-lines):], nil)
}
