package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// findReceive finds pg_recvlogical: Debian's newest, for the one in its PATH is a script that looks
// for it, or else whatever is in the PATH.
func findReceive() string {
	paths, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pg_recvlogical")
	if len(paths) > 0 {
		return slices.MaxFunc(paths, func(a, b string) int {
			return len(a) - len(b) + strings.Compare(a, b)
		})
	}
	path, _ := exec.LookPath("pg_recvlogical")
	return path
}

// drainReceive lets pg_recvlogical drain the slot to /dev/null. The clock runs from its saying that
// it streams until it has ended.
func (b *bench) drainReceive(ctx context.Context, task drainTask) (result drainResult, err error) {
	cmd := exec.CommandContext(ctx, b.receive,
		"--dbname="+task.db.DSN, "--slot="+task.slot, "--start", "--endpos="+task.end,
		"--file=-", "--no-loop", "--verbose",
		"--option=proto_version=1", "--option=publication_names=walrelay")
	cmd.Env = []string{"LC_ALL=C"}
	receive := startProcess(b.t, cmd, "streaming initiated")
	start, err := receive.streaming(ctx)
	if err != nil {
		return result, err
	}
	meter, err := startMeter()
	if err != nil {
		return result, err
	}
	if err := receive.wait(ctx); err != nil {
		return result, err
	}
	result.Seconds = time.Since(start).Seconds()
	result.CPUSeconds = receive.cpu().Seconds()
	machine, _, err := meter.used()
	result.MachineCPUSeconds = machine.Seconds()
	return result, err
}
