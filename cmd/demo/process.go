package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// process is a child that does not outlive this process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and was waited for
	err  error         // of its end; read it after done
}

// launch starts cmd with its output in a file. On Linux the kernel sends it the signal death when
// this process ends in whatever way. It does so when the *thread* that forked ends (PR_SET_PDEATHSIG
// in prctl(2)), and Go ends a thread only with the goroutine locked to it; so that one stays and waits.
func launch(cmd *exec.Cmd, output string, death syscall.Signal) (*process, error) {
	log, err := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the child has a descriptor of its own
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // the terminal's Ctrl-C is for us alone
	dieWithParent(cmd.SysProcAttr, death)

	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	return p, nil
}

// runToEnd runs cmd; when ctx ends first it is killed, and so are the processes that it has started: initdb runs the
// server, which goes on writing by itself. The error of a failed one holds its last words.
func runToEnd(ctx context.Context, cmd *exec.Cmd, output string) error {
	held, holder, err := os.Pipe() // whoever descends from cmd has the other end, until it ends
	if err != nil {
		return fmt.Errorf("open pipe: %w", err)
	}
	defer held.Close() //nolint:errcheck // nothing is written to it
	cmd.ExtraFiles = []*os.File{holder}
	p, err := launch(cmd, output, syscall.SIGKILL)
	_ = holder.Close()
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // its group; fails when it has ended already
		err := p.stop(syscall.SIGKILL, 10*time.Second)
		_ = held.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, _ = held.Read(make([]byte, 1)) // until they have ended
		return errors.Join(context.Cause(ctx), err)
	}
	if p.err != nil {
		return fmt.Errorf("run %s: %w\n%s", filepath.Base(cmd.Path), p.err, lastWords(output))
	}
	return nil
}

// stop sends a signal and waits for the end; who has not ended in time is killed, which is an error.
func (p *process) stop(signal syscall.Signal, limit time.Duration) error {
	_ = p.cmd.Process.Signal(signal) // fails when it has ended already
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return fmt.Errorf("%s still ran %v after %v and was killed", filepath.Base(p.cmd.Path), limit, signal)
}

// lastWords are the last lines of a log.
func lastWords(path string) []byte {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	const lines = 12
	all := bytes.SplitAfter(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(all[max(0, len(all)-lines):], nil)
}
