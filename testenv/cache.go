package testenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// artifactDir is where fetched artifacts are kept, shared by all test processes of this user.
func artifactDir() (string, error) {
	dir := os.Getenv("WALRELAY_TESTENV_CACHE")
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find cache directory (or set WALRELAY_TESTENV_CACHE): %w", err)
		}
		dir = filepath.Join(user, "walrelay-testenv")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make cache directory: %w", err)
	}
	return dir, nil
}

// sharedDir holds what an unprivileged server must be able to read and run: unpacked programs, the
// working directories of the test processes, port reservations.
func sharedDir() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("walrelay-testenv-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make shared directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("check shared directory: %w", err)
	}
	// Anybody may create this name in a world-writable directory; what lies in it is executed.
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(st.Uid) != os.Getuid() {
		return "", fmt.Errorf("check shared directory: %s belongs to somebody else", dir)
	}
	return dir, nil
}

// cached returns dir, filling it first when it is missing. Processes that need the same directory
// wait for the one that fills it, and a half-filled one is never seen: it gets its name last.
func cached(dir string, fill func(dir string) error) (string, error) {
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	unlock, err := lock(filepath.Join(filepath.Dir(dir), "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}

	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil { // of a process that was killed meanwhile
		return "", fmt.Errorf("remove half-filled directory: %w", err)
	}
	if err := os.Mkdir(part, 0o755); err != nil {
		return "", fmt.Errorf("make cache entry: %w", err)
	}
	if err := fill(part); err != nil {
		return "", errors.Join(err, os.RemoveAll(part))
	}
	if err := os.Rename(part, dir); err != nil {
		return "", fmt.Errorf("finish cache entry: %w", err)
	}
	return dir, nil
}

// lock waits for the exclusive lock on a file. The kernel frees it when the process ends.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
	}
}

// workDir is this process's own directory below sharedDir, made once. The directories of processes
// that were killed before they could remove theirs go at the same time.
//

var workDir = sync.OnceValues(func() (string, error) {
	shared, err := sharedDir()
	if err != nil {
		return "", err
	}
	if err := sweep(shared); err != nil {
		return "", err
	}
	dir := filepath.Join(shared, "run-"+strconv.Itoa(os.Getpid()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make working directory: %w", err)
	}
	return dir, nil
})

// sweep removes the working directories of processes that are no more.
func sweep(shared string) error {
	dirs, err := filepath.Glob(filepath.Join(shared, "run-*"))
	if err != nil {
		return fmt.Errorf("list working directories: %w", err)
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "run-"))
		if err != nil || (pid != os.Getpid() && syscall.Kill(pid, 0) == nil) {
			continue
		}
		killInside(dir)
		left, _ := filepath.Glob(filepath.Join(dir, "*", "data"))
		dropSharedMemory(left...)
		_ = os.RemoveAll(dir) // another process may sweep at the same time; what remains is swept next time
	}
	return nil
}
