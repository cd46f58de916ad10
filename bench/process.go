package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a program being measured. testenv has processes too, but keeps what they print, and
// their resource usage, to itself.
type process struct {
	cmd  *exec.Cmd
	log  *logWatch
	done chan struct{} // closed when the process was waited for
	err  error         // how it ended; read it after done
}

// startProcess starts a program whose standard output goes to /dev/null. The text sign in its
// standard error says that it streams.
func startProcess(t testing.TB, cmd *exec.Cmd, sign string) *process {
	t.Helper()
	p := &process{cmd: cmd, log: &logWatch{sign: []byte(sign), seen: make(chan struct{})}, done: make(chan struct{})}
	cmd.Stderr = p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	started := make(chan error, 1)
	go func() {
		// The parent whose death the kernel looks at is this thread, which must not end before.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", filepath.Base(cmd.Path), err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.done
	})
	return p
}

// streaming waits until the process says that it streams, and returns when that was.
func (p *process) streaming(ctx context.Context) (time.Time, error) {
	select {
	case <-p.log.seen:
		return p.log.at, nil
	case <-p.done:
		return time.Time{}, p.ended()
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}

// wait waits for the end of the process, which is an error when the exit code says so.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		if p.err != nil {
			return p.ended()
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stop asks the process to end and waits for that.
func (p *process) stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return errors.Join(err, p.ended())
	}
	return p.wait(ctx)
}

// ended describes an end that was not expected.
func (p *process) ended() error {
	<-p.done
	return fmt.Errorf("%s ended (%s):\n%s", filepath.Base(p.cmd.Path), p.cmd.ProcessState, p.log.tail())
}

// cpu is what the process, which has ended, used of the processors.
func (p *process) cpu() time.Duration {
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// logWatch keeps the end of what a process writes, and notices a sign in it.
type logWatch struct {
	sign []byte // empty: none is expected
	seen chan struct{}
	at   time.Time // of the sign; read it after seen

	mu   sync.Mutex
	text []byte
}

const logKept = 64 << 10

// Write implements io.Writer.
func (w *logWatch) Write(b []byte) (int, error) {
	at := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, b...)
	if len(w.sign) > 0 && bytes.Contains(w.text, w.sign) {
		w.at, w.sign = at, nil
		close(w.seen)
	}
	if excess := len(w.text) - logKept; excess > 0 {
		w.text = append(w.text[:0], w.text[excess:]...)
	}
	return len(b), nil
}

func (w *logWatch) tail() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text[max(0, len(w.text)-4<<10):])
}
