package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// cpuOf is what running processes have used of the processors so far, each.
func cpuOf(pids ...int) ([]time.Duration, error) {
	var used []time.Duration
	for _, pid := range pids {
		own, _, err := readCPU(pid)
		if err != nil {
			return nil, err
		}
		used = append(used, own)
	}
	return used, nil
}

// cpuOfChildren is what a process's children had used that have ended.
func cpuOfChildren(pid int) (time.Duration, error) {
	_, children, err := readCPU(pid)
	return children, err
}

// readCPU is exact to a hundredth of a second.
func readCPU(pid int) (own, children time.Duration, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read processor time: %w", err)
	}
	// proc_pid_stat(5): pid (name) state …, where the name may hold anything; utime, stime, cutime and
	// cstime are the fields 14 to 17. The unit is USER_HZ, 100 on every architecture that matters.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 15 {
		return 0, 0, errors.New("read processor time: too few fields")
	}
	var times [4]time.Duration
	for i := range times {
		ticks, err := strconv.ParseInt(fields[11+i], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read processor time: %w", err)
		}
		times[i] = time.Duration(ticks) * (time.Second / 100)
	}
	return times[0] + times[1], times[2] + times[3], nil
}

// peakRSS is the most memory that a running process has had resident, in bytes.
func peakRSS(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read peak memory: %w", err)
	}
	return kilobytes(status, "VmHWM:")
}

// kilobytes finds a line "name 123 kB" of a file in /proc and returns bytes.
func kilobytes(text []byte, name string) (int64, error) {
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s %w", name, err)
		}
		return n << 10, nil
	}
	return 0, fmt.Errorf("read %s it is not there", name)
}
