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

// unpack fetches the archive, unless it is in the user's cache, and unpacks it.
func unpack(dir string) error {
	cache := os.TempDir()
	if user, err := os.UserCacheDir(); err == nil {
		cache = filepath.Join(user, "walrelay-demo")
	}
	syscall.Umask(0o022) // another user will run the programs
	// The library has no call for this part alone, and cannot start a server as another user. A data
	// directory of this name cannot be removed, so that Start unpacks and then stops, on any system.
	unremovable := dir + string(filepath.Separator) + "."
	err := embedded.NewDatabase(embedded.DefaultConfig().
		Version(postgresVersion).
		Port(0).
		Logger(io.Discard).
		CachePath(cache).
		RuntimePath(dir + ".runtime").
		BinariesPath(dir).
		DataPath(unremovable)).Start()
	if _, statErr := os.Stat(filepath.Join(dir, "bin", "postgres")); statErr != nil {
		return fmt.Errorf("fetch PostgreSQL %s: %w", postgresVersion, err)
	}
	return nil
}

// unpackPostgres runs unpack in a process of its own and returns the directory of the programs. The
// library cannot cancel a download and leaves files behind, but a process can be killed and has its
// own temporary directory.
func unpackPostgres(ctx context.Context, h *home) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	dir := h.path("postgres")
	cmd := exec.Command(self, "--unpack", dir)
	cmd.Env = append(os.Environ(), "TMPDIR="+h.dir)
	return filepath.Join(dir, "bin"), runToEnd(ctx, cmd, h.path("unpack.log"))
}
