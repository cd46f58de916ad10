package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Ports are taken below the range from which Linux picks local ports for connections (32768 and up
// by default): a server that is stopped for a while must find its port free again.
const (
	firstPort = 12000
	lastPort  = 32000
)

// reservePort finds a free loopback port that no other test process uses. It stays reserved until
// this process ends, by a lock on a file.
func reservePort() (int, error) {
	shared, err := sharedDir()
	if err != nil {
		return 0, err
	}
	dir := filepath.Join(shared, "ports")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("make port directory: %w", err)
	}
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		// Not an os.File: that would be closed, and the lock freed, when nothing refers to it.
		fd, err := syscall.Open(filepath.Join(dir, strconv.Itoa(port)),
			syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o644)
		if err != nil {
			return 0, fmt.Errorf("open port reservation: %w", err)
		}
		if syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil && bindable(port) {
			return port, nil
		}
		_ = syscall.Close(fd)
	}
	return 0, errors.New("find free port: none in 200 tries")
}

func bindable(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Addr is a free loopback address for a server of the test's own, which nobody else gets while this
// process runs.
func Addr(t testing.TB) string {
	t.Helper()
	port, err := reservePort()
	if err != nil {
		t.Fatalf("reserve port: %v", err)
	}
	return loopback(port)
}
