package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const homePrefix = "walrelay-demo-"

// home is the one directory that everything temporary lies in. A lock on a file in it says that its
// demo still runs; what a killed one has left, the next one removes.
type home struct {
	dir  string
	lock *os.File
}

func openHome() (*home, error) {
	parent, err := temporary()
	if err != nil {
		return nil, err
	}
	sweep(parent)
	dir, err := os.MkdirTemp(parent, homePrefix)
	if err != nil {
		return nil, fmt.Errorf("make temporary directory: %w", err)
	}
	h := &home{dir: dir}
	if err := h.prepare(); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

func (h *home) prepare() (err error) {
	if os.Getuid() == 0 { // the server's user must get to its data
		if err := os.Chmod(h.dir, 0o711); err != nil {
			return fmt.Errorf("open temporary directory: %w", err)
		}
	}
	// The lock gets its name when it is held, so that no other demo finds it free.
	if h.lock, err = os.Create(h.path("lock.new")); err != nil {
		return fmt.Errorf("make lock: %w", err)
	}
	if err := syscall.Flock(int(h.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("lock temporary directory: %w", err)
	}
	if err := os.Rename(h.lock.Name(), h.path("lock")); err != nil {
		return fmt.Errorf("make lock: %w", err)
	}
	return nil
}

func (h *home) path(name string) string { return filepath.Join(h.dir, name) }

func (h *home) close() error {
	err := os.RemoveAll(h.dir)
	if h.lock != nil {
		err = errors.Join(err, h.lock.Close())
	}
	return err
}

// sweep removes the homes of demos that were killed.
func sweep(parent string) {
	locks, _ := filepath.Glob(filepath.Join(parent, homePrefix+"*", "lock"))
	for _, path := range locks {
		lock, err := os.Open(path)
		if err != nil {
			continue // somebody else's
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		_ = lock.Close()
	}
}

// temporary is where temporary files go. Root's may lie where the server's user cannot get to.
func temporary() (string, error) {
	dirs := []string{os.TempDir()}
	if os.Getuid() == 0 {
		dirs = append(dirs, "/tmp", "/var/tmp")
	}
	for _, dir := range dirs {
		if os.Getuid() != 0 || passable(dir) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("find a temporary directory open to every user: none of %s", strings.Join(dirs, ", "))
}

// passable says whether every user may pass through a directory and those above it.
func passable(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
		dir = filepath.Dir(dir)
	}
}
