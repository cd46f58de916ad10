package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"golang.org/x/sys/unix"
)

// fillDisk bounds the size of the files that a broker may write, which asks for no privileges and
// fails its writes in the middle as a full disk does: with EFBIG, since the JVM ignores SIGXFSZ. With
// the size of the largest log as the bound, the broker loses the disk of that log: it goes on with the
// other and answers KAFKA_STORAGE_ERROR meanwhile. With 0 it loses everything and ends itself.
func fillDisk(ctx context.Context, w *world, hold func()) error {
	i := w.random.IntN(brokers)
	limit, err := w.largestLog(ctx, i)
	if err != nil {
		return err
	}
	limit *= pick[int64](w.random, 1, 1, 0)
	pid := w.cluster.BrokerPID(i)
	var before unix.Rlimit
	bound := func(now *unix.Rlimit, before *unix.Rlimit) error {
		if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, now, before); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("limit files of broker %d: %w", i, err)
		}
		return nil
	}
	if err := bound(nil, &before); err != nil {
		return err
	}
	if err := bound(&unix.Rlimit{Cur: uint64(limit), Max: before.Max}, nil); err != nil {
		return err
	}
	var lost int
	if !await(ctx, stepLimit, func(ctx context.Context) bool {
		lost = w.lostDisks(ctx, i)
		return lost > 0
	}) {
		return fmt.Errorf("broker %d writes on", i)
	}
	w.t.Logf("        broker %d: files up to %d bytes, %d of %d disks lost", i, limit, lost, disks)
	hold()
	if err := bound(&before, nil); err != nil { // somebody makes room
		return err
	}
	w.cluster.KillBroker(w.t, i) // for an orderly shutdown without a disk takes Kafka a minute
	w.cluster.StartBroker(w.t, i)
	return nil
}

const disks = 2 // of a broker

// largestLog is the size of a broker's largest log, in bytes.
func (w *world) largestLog(ctx context.Context, i int) (size int64, err error) {
	dirs, err := w.cluster.Admin.DescribeBrokerLogDirs(ctx, w.cluster.NodeID(i), nil)
	if err == nil {
		err = dirs.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("describe disks of broker %d: %w", i, err)
	}
	dirs.Each(func(d kadm.DescribedLogDir) {
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) { size = max(size, p.Size) })
	})
	return size, nil
}

// lostDisks is how many disks a broker has lost, all of them when it has ended.
func (w *world) lostDisks(ctx context.Context, i int) (lost int) {
	if errors.Is(syscall.Kill(w.cluster.BrokerPID(i), 0), syscall.ESRCH) {
		return disks
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	dirs, err := w.cluster.Admin.DescribeBrokerLogDirs(ctx, w.cluster.NodeID(i), nil)
	if err != nil {
		return 0 // it may be ending
	}
	dirs.Each(func(d kadm.DescribedLogDir) {
		if d.Err != nil {
			lost++
		}
	})
	return lost
}
