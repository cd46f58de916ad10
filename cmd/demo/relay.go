package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// relayStatus is what we use of walrelay's /status.
type relayStatus struct {
	Ready   bool   `json:"ready"`
	Verdict string `json:"verdict"`
	Status  struct {
		State  string `json:"state"`
		Reason string `json:"reason"`
	} `json:"status"`
	SecondsBehind *float64 `json:"seconds_behind"` // nil: unknown
	Lag           *struct {
		ConfirmedBytes int64 `json:"confirmed_bytes"`
	} `json:"lag"` // nil: unknown
}

// relay is the walrelay program, as a user runs it.
type relay struct {
	program string
	env     []string
	log     string
	admin   string // host:port
	process *process

	mu             sync.Mutex
	status         *relayStatus // nil: it did not answer
	highestSeconds float64
	highestBytes   int64
	stopping       bool
}

// newRelay configures walrelay for that database, slot and topic.
func newRelay(program string, h *home, db *database, b *broker) (*relay, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	r := &relay{program: program, log: h.path("walrelay.log"), admin: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	for _, variable := range os.Environ() {
		ours := db.server != nil && strings.HasPrefix(variable, "PG")
		if !ours && !strings.HasPrefix(variable, "WALRELAY_") {
			r.env = append(r.env, variable)
		}
	}
	r.env = append(r.env,
		"WALRELAY_DATABASE_URL="+db.url,
		"WALRELAY_KAFKA_BROKERS="+strings.Join(b.addrs, ","),
		"WALRELAY_SLOT="+db.name,
		"WALRELAY_TOPIC="+b.topic,
		"WALRELAY_ADMIN_ADDR="+r.admin,
		"WALRELAY_BACKOFF_MAX=1s", // after an outage of seconds nobody wants to watch a longer pause
	)
	return r, nil
}

// findRelay returns the program, by default the one beside this.
func findRelay(given string) (string, error) {
	program := given
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find this program: %w", err)
		}
		program = filepath.Join(filepath.Dir(self), "walrelay")
	}
	if _, err := exec.LookPath(program); err != nil {
		return "", fmt.Errorf("find walrelay: %w\nBuild it with: go build -o bin/walrelay ./cmd/walrelay", err)
	}
	return filepath.Abs(program)
}

func (r *relay) command(args ...string) *exec.Cmd {
	cmd := exec.Command(r.program, args...)
	cmd.Env = r.env
	return cmd
}

// start makes the tables, runs walrelay and waits until it streams: the shop's events count from the
// moment when the slot is there.
func (r *relay) start(ctx context.Context) (err error) {
	if err := runToEnd(ctx, r.command("migrate", "up"), r.log); err != nil {
		return err
	}
	if r.process, err = launch(r.command("run"), r.log, syscall.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for {
		r.ask(ctx)
		if status := r.last(); status != nil && status.Status.State == "streaming" {
			return nil
		}
		select {
		case <-r.process.done:
			return r.ended()
		case <-ctx.Done():
			return fmt.Errorf("await walrelay: %w\n%s", context.Cause(ctx), lastWords(r.log))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (r *relay) ended() error {
	how := r.process.err
	if how == nil {
		how = errors.New("exit status 0")
	}
	return fmt.Errorf("walrelay has ended: %w\n%s", how, lastWords(r.log))
}

// watch asks for the status until ctx ends. It is an error when walrelay ends by itself.
func (r *relay) watch(ctx context.Context) error {
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.process.done:
			if r.expected() {
				return nil
			}
			return r.ended()
		case <-ticker.C:
			r.ask(ctx)
		}
	}
}

// ask gets the status and keeps the highest lag.
func (r *relay) ask(ctx context.Context) {
	status, err := r.fetch(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = nil
	if err != nil {
		return
	}
	r.status = status
	if status.SecondsBehind != nil {
		r.highestSeconds = max(r.highestSeconds, *status.SecondsBehind)
	}
	if status.Lag != nil {
		r.highestBytes = max(r.highestBytes, status.Lag.ConfirmedBytes)
	}
}

func (r *relay) fetch(ctx context.Context) (*relayStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.admin+"/status", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	var status relayStatus
	return &status, json.NewDecoder(response.Body).Decode(&status)
}

// last is the newest answer; nil when the last question had none.
func (r *relay) last() *relayStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

func (r *relay) highest() (seconds float64, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.highestSeconds, r.highestBytes
}

func (r *relay) expected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopping
}

// stop asks walrelay to end as an operator does, and expects exit code 0.
func (r *relay) stop() error {
	r.mu.Lock()
	r.stopping = true
	r.mu.Unlock()
	if err := r.process.stop(syscall.SIGTERM, 30*time.Second); err != nil {
		return err
	}
	if r.process.err != nil {
		return r.ended()
	}
	return nil
}

// kill ends walrelay in whatever state it is.
func (r *relay) kill() error {
	if r.process == nil {
		return nil
	}
	return r.process.stop(syscall.SIGKILL, 10*time.Second)
}
