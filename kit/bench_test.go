package kit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// contender does the work of its base, and something more, for the n-th time. C is what it works on.
type contender[C any] struct {
	name, base string
	prepare    func(ctx context.Context, conn C, n int) error // not measured; may be nil
	run        func(ctx context.Context, conn C, n int) error
}

// measured is what one run of a contender took.
type measured struct {
	time time.Duration
	wal  float64 // bytes
}

// BenchmarkPatterns compares each mechanism with the bare transaction that does the same work: contenders
// take turns in random order, one transaction each, on one connection, and medians are compared. So what
// the machine does besides meets all of them alike. Its own times mean nothing; ratios are printed.
//
// Without fsync nothing waits for a disk, and the mechanism's statements show. With it every commit waits for one,
// and what is done beside it counts for less, unless it adds a commit.
func BenchmarkPatterns(b *testing.B) {
	for _, fsync := range []string{"off", "on"} {
		b.Run("fsync="+fsync, func(b *testing.B) {
			db := database(b, testenv.StartPostgres(b, 18, testenv.Config{Settings: map[string]string{
				"fsync": fsync, "checkpoint_timeout": "1h", "max_wal_size": "4GB", "autovacuum": "off",
			}}))
			conn, err := pgx.Connect(b.Context(), db.Server().SocketDSN(db.Name))
			require.NoError(b, err)
			defer func() { _ = conn.Close(context.Background()) }()
			compare(b, conn, contenders(b, conn), written)
		})
	}
}

// written is the end of the write-ahead log in bytes.
func written(ctx context.Context, conn *pgx.Conn) (bytes float64, err error) {
	err = conn.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&bytes)
	return bytes, err
}

// compare lets contenders take turns and prints medians through their base's. Log may be nil.
func compare[C any](
	b *testing.B, conn C, contenders []contender[C], log func(ctx context.Context, conn C) (bytes float64, err error),
) {
	b.Helper()
	samples := make([][]measured, len(contenders))
	n := 0
	for b.Loop() {
		n++
		for _, i := range rand.Perm(len(contenders)) {
			samples[i] = append(samples[i], measure(b, conn, contenders[i], n, log))
		}
	}
	b.ReportMetric(0, "ns/op") // hides it
	var table strings.Builder
	fmt.Fprintf(&table, "medians of %d rounds ÷ bare: time (range over tenths of the rounds) write-ahead log\n", n)
	for i, c := range contenders {
		base := samples[slices.IndexFunc(contenders, func(other contender[C]) bool { return other.name == c.base })]
		var tenths []float64
		for part := range 10 {
			from, to := part*n/10, (part+1)*n/10
			if from < to {
				tenths = append(tenths, ratio(samples[i][from:to], base[from:to], seconds))
			}
		}
		fmt.Fprintf(&table, "%-34s %-8.2f (%.2f–%.2f)", c.name, ratio(samples[i], base, seconds),
			slices.Min(tenths), slices.Max(tenths))
		if log != nil {
			fmt.Fprintf(&table, " %.1f", ratio(samples[i], base, func(m measured) float64 { return m.wal }))
		}
		table.WriteByte('\n')
	}
	_, _ = fmt.Fprintf(os.Stdout, "\n%s", table.String()) // b.Log cuts after ten lines
}

func measure[C any](
	b *testing.B, conn C, c contender[C], n int, log func(ctx context.Context, conn C) (bytes float64, err error),
) (m measured) {
	b.Helper()
	ctx := b.Context()
	if c.prepare != nil {
		require.NoError(b, c.prepare(ctx, conn, n), c.name)
	}
	var before, after float64
	var err error
	if log != nil {
		before, err = log(ctx, conn)
		require.NoError(b, err)
	}
	began := time.Now()
	err = c.run(ctx, conn, n)
	m.time = time.Since(began)
	require.NoError(b, err, c.name)
	if log != nil {
		after, err = log(ctx, conn)
		require.NoError(b, err)
	}
	m.wal = after - before
	return m
}

func seconds(m measured) float64 { return m.time.Seconds() }

// ratio is that of the medians.
func ratio(samples, base []measured, of func(measured) float64) float64 {
	return median(samples, of) / median(base, of)
}

func median(samples []measured, of func(measured) float64) float64 {
	var values []float64
	for _, m := range samples {
		values = append(values, of(m))
	}
	slices.Sort(values)
	return values[len(values)/2]
}
