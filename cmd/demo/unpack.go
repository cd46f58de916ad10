package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// postgresVersion is that of the archive which is fetched.
const postgresVersion = "18.4.0"

// unpackCommand is a process of its own: a download cannot be cancelled and the library leaves files
// behind, but a process can be killed and has its own temporary directory.
type unpackCommand struct {
	Cache string `arg:"" help:"Where archives are kept."`
	Dir   string `arg:"" help:"Where to unpack."`
}

// run fetches the archive, unless it is in the cache, and unpacks it.
func (c *unpackCommand) run() error {
	syscall.Umask(0o022) // another user will run the programs
	// The library has no call for this part alone, and cannot start a server as another user. A data
	// directory of this name cannot be removed, so that Start unpacks and then stops, on any system.
	unremovable := c.Dir + string(filepath.Separator) + "."
	err := embedded.NewDatabase(embedded.DefaultConfig().
		Version(postgresVersion).
		Port(0).
		Logger(io.Discard).
		CachePath(c.Cache).
		RuntimePath(c.Dir + ".runtime").
		BinariesPath(c.Dir).
		DataPath(unremovable)).Start()
	if _, statErr := os.Stat(filepath.Join(c.Dir, "bin", "postgres")); statErr != nil {
		return fmt.Errorf("fetch PostgreSQL %s: %w", postgresVersion, err)
	}
	return nil
}

// unpackPostgres runs the command above and returns the directory of the programs.
func unpackPostgres(ctx context.Context, h *home) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	cache := h.dir
	if user, err := os.UserCacheDir(); err == nil {
		cache = filepath.Join(user, "walrelay-demo")
	}
	dir := h.path("postgres")
	cmd := exec.Command(self, "unpack", cache, dir)
	cmd.Env = append(os.Environ(), "TMPDIR="+h.dir)
	return filepath.Join(dir, "bin"), runToEnd(ctx, cmd, h.path("unpack.log"))
}
