package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// profile lets perf sample the stacks of a process, until that ends, into a file for `perf report`.
// It costs the process a few per cent, so figures taken meanwhile are for orientation.
func (b *bench) profile(ctx context.Context, p *process, file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make profile directory: %w", err)
	}
	perf, err := exec.LookPath("perf")
	if err != nil {
		return fmt.Errorf("find perf: %w", err)
	}
	// Go keeps frame pointers, so the cheap way of unwinding serves. 499 samples a second, a prime,
	// keep out of step with timers.
	startProcess(b.t, exec.CommandContext(ctx, perf, "record", "--quiet", "--freq=499", "--call-graph=fp",
		"--pid="+strconv.Itoa(p.cmd.Process.Pid), "--output="+file), "")
	return nil
}
