package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// machine is where the figures were taken.
type machine struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	MemoryBytes int64  `json:"memory_bytes"`
	Kernel      string `json:"kernel"`
	// LoadAverage of the last minute, before anything was started: above 1 or so, others were busy.
	LoadAverage string `json:"load_average"`
}

func describeMachine() (machine, error) {
	m := machine{CPU: "unknown", Cores: runtime.NumCPU()}
	files := map[string]string{}
	for _, name := range []string{"cpuinfo", "meminfo", "loadavg", "sys/kernel/osrelease"} {
		text, err := os.ReadFile("/proc/" + name)
		if err != nil {
			return m, fmt.Errorf("describe machine: %w", err)
		}
		files[name] = string(text)
	}
	for line := range strings.Lines(files["cpuinfo"]) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	m.Kernel = strings.TrimSpace(files["sys/kernel/osrelease"])
	m.LoadAverage, _, _ = strings.Cut(files["loadavg"], " ")
	var err error
	m.MemoryBytes, err = kilobytes([]byte(files["meminfo"]), "MemTotal:")
	return m, err
}

// setup is what was measured, and how.
type setup struct {
	Command       string `json:"command"`
	Go            string `json:"go"`
	Walrelay      string `json:"walrelay"`
	PgRecvlogical string `json:"pg_recvlogical"` // empty: missing
	PostgreSQL    string `json:"postgresql"`
	Kafka         string `json:"kafka"`
	// The server's settings that decide how durable a commit is.
	Fsync             string `json:"fsync"`
	FullPageWrites    string `json:"full_page_writes"`
	SynchronousCommit string `json:"synchronous_commit"` // the backlog's fill turns it off for itself
	Partitions        int    `json:"partitions"`
	Rounds            int    `json:"rounds"`
}

func (b *bench) describe(ctx context.Context) (setup, error) {
	s := setup{
		Command: strings.Join(append([]string{"go run ./bench"}, b.options.args...), " "),
		Go:      runtime.Version(), Partitions: partitions, Rounds: b.options.rounds,
	}
	b.server.QueryRow(b.t, `SELECT current_setting('server_version'), current_setting('fsync'),
		current_setting('full_page_writes'), current_setting('synchronous_commit')`, nil,
		&s.PostgreSQL, &s.Fsync, &s.FullPageWrites, &s.SynchronousCommit)
	versions, err := b.cluster.Admin.ApiVersions(ctx)
	if err != nil {
		return s, fmt.Errorf("ask broker's version: %w", err)
	}
	versions.Each(func(v kadm.BrokerApiVersions) { s.Kafka = v.VersionGuess() })
	if s.Walrelay, err = output(ctx, b.relay, "version"); err != nil {
		return s, err
	}
	if b.receive != "" {
		if s.PgRecvlogical, err = output(ctx, b.receive, "--version"); err != nil {
			return s, err
		}
	}
	return s, nil
}

// output is the one line that a program prints.
func output(ctx context.Context, path string, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, path, args...).Output()
	if err != nil {
		return "", fmt.Errorf("ask for version: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
