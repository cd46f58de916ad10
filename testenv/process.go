package testenv

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const program = "github.com/walrelay/walrelay/cmd/walrelay"

// Binary builds cmd/walrelay, once per test process, and returns the path of the program.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatalf("build walrelay: %v", err)
	}
	return path
}

var binary = sync.OnceValues(func() (string, error) {
	work, err := workDir()
	if err != nil {
		return "", err
	}
	if err := readSources(); err != nil {
		return "", err
	}
	path := filepath.Join(work, "walrelay")
	args := append([]string{"build", "-o", path}, buildFlags()...)
	build := exec.Command("go", append(args, program)...)
	var out bytes.Buffer
	build.Stdout, build.Stderr = &out, &out
	if _, err := runChild(build); err != nil {
		return "", fmt.Errorf("%w\n%s", err, tail(out.Bytes(), 30))
	}
	return path, nil
})

// readSources looks at what the program is built of: go test takes a result from its cache unless something that the
// test itself has imported or read has changed, and what `go build` reads below it is neither.
func readSources() error {
	list := exec.Command("go", "list", "-deps", "-f",
		"{{with .Module}}{{if .Main}}{{$.Dir}}{{range $.EmbedFiles}}\n{{$.Dir}}/{{.}}{{end}}{{end}}{{end}}", program)
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list sources: %w", err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		source, err := os.Open(path) // of a folder, this counts as reading all that is in it
		if err != nil {
			return fmt.Errorf("look at sources: %w", err)
		}
		_ = source.Close()
	}
	return nil
}

// Command is a program to start.
type Command struct {
	Path string // for example Binary(t)
	Args []string
	// Env is the whole environment, but for PATH, HOME and TMPDIR.
	Env map[string]string
	Dir string // the working directory; empty means the test's
}

// Process is a program that runs, or has ended. It is killed at the end of the test.
type Process struct {
	name           string
	child          *child
	stdout, stderr output
}

// StartProcess starts a program.
func StartProcess(t testing.TB, command Command) *Process {
	t.Helper()
	p := &Process{name: filepath.Base(command.Path)}
	cmd := exec.Command(command.Path, command.Args...)
	cmd.Dir = command.Dir
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
	cmd.Env = []string{} // not nil, which would mean ours
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	for name, value := range command.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var err error
	if p.child, err = startChild(cmd); err != nil {
		t.Fatalf("start process: %v", err)
	}
	t.Cleanup(func() {
		if err := p.child.stop(syscall.SIGKILL, time.Minute); err != nil {
			t.Errorf("end %s: %v", p.name, err)
		}
		if t.Failed() {
			t.Logf("%s wrote:\n%s", p.name, tail([]byte(p.Stdout()+p.Log()), 60))
		}
	})
	return p
}

// PID is the process's id.
func (p *Process) PID() int { return p.child.pid() }

// Stdout is what the process has written to its standard output so far.
func (p *Process) Stdout() string { return p.stdout.String() }

// Log is what the process has written to its standard error so far.
func (p *Process) Log() string { return p.stderr.String() }

// WaitForLog waits until standard error or output contains text. It ends the test when that is not
// so in time, or when the process ends without.
func (p *Process) WaitForLog(t testing.TB, text string, timeout time.Duration) {
	t.Helper()
	found := false
	poll(timeout, func() bool {
		ended := p.child.exited() // looked at first: all of its output is there then
		found = strings.Contains(p.Log(), text) || strings.Contains(p.Stdout(), text)
		return found || ended
	})
	if !found {
		t.Fatalf("%s did not write %q (running: %t)", p.name, text, p.Running())
	}
}

// Running says whether the process has not ended yet.
func (p *Process) Running() bool { return !p.child.exited() }

// Signal sends a signal.
func (p *Process) Signal(t testing.TB, sig os.Signal) {
	t.Helper()
	if err := p.child.signal(sig); err != nil {
		t.Fatalf("signal %s: %v", p.name, err)
	}
}

// Kill ends the process at once and waits until it is gone.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	if err := p.child.stop(syscall.SIGKILL, time.Minute); err != nil {
		t.Fatalf("kill %s: %v", p.name, err)
	}
}

// Wait waits for the end of the process and returns its exit code, -1 when a signal ended it.
func (p *Process) Wait(t testing.TB, timeout time.Duration) int {
	t.Helper()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.child.done:
	case <-timer.C:
		t.Fatalf("%s still runs after %v", p.name, timeout)
	}
	return p.child.cmd.ProcessState.ExitCode()
}

// output collects what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
