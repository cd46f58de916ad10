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

// meter reads what the machine and some running processes use of the processors meanwhile.
type meter struct {
	pids   []int
	before []time.Duration // the machine first
}

func startMeter(pids ...int) (*meter, error) {
	m := &meter{pids: pids}
	var err error
	m.before, err = m.read()
	return m, err
}

// used returns the machine's time, and those of the processes in their order.
func (m *meter) used() (machine time.Duration, processes []time.Duration, err error) {
	now, err := m.read()
	if err != nil {
		return 0, nil, err
	}
	for i := range now {
		now[i] -= m.before[i]
	}
	return now[0], now[1:], nil
}

func (m *meter) read() ([]time.Duration, error) {
	machine, err := cpuOfMachine()
	if err != nil {
		return nil, err
	}
	times := []time.Duration{machine}
	for _, pid := range m.pids {
		own, _, err := readCPU(pid)
		if err != nil {
			return nil, err
		}
		times = append(times, own)
	}
	return times, nil
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
	// cstime are the fields 14 to 17.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 15 {
		return 0, 0, errors.New("read processor time: too few fields")
	}
	var times [4]time.Duration
	for i := range times {
		if times[i], err = parseTicks(fields[11+i]); err != nil {
			return 0, 0, err
		}
	}
	return times[0] + times[1], times[2] + times[3], nil
}

// cpuOfMachine is how long the processors have been busy, with whatever, or kept from us by the host.
func cpuOfMachine() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	fields := strings.Fields(line) // proc_stat(5): cpu user nice system idle iowait irq softirq steal …
	if len(fields) < 9 {
		return 0, errors.New("read processor time: too few fields")
	}
	var busy time.Duration
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		used, err := parseTicks(fields[i])
		if err != nil {
			return 0, err
		}
		busy += used
	}
	return busy, nil
}

// parseTicks reads a time in units of USER_HZ, which is 100 on every architecture that matters.
func parseTicks(text string) (time.Duration, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	return time.Duration(n) * (time.Second / 100), nil
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
