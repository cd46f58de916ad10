package idempotency_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/idempotency"
	"github.com/walrelay/walrelay/testenv"
)

const childDSN = "WALRELAY_IDEMPOTENCY_CHILD"

const (
	crashLease = 150 * time.Millisecond
	crashLimit = 5 * time.Minute
	crashKills = 20 // more than these make a test of it
)

func crashRequest(i int) (key string, r idempotency.Request) {
	key = fmt.Sprintf("key-%d", i)
	r = request(key)
	r.Lease = crashLease
	return key, r
}

// slowly leaves time in which to be killed: before the effect, after it, and before the commit.
func slowly(key, worker string) idempotency.Work {
	return func(ctx context.Context, tx pgx.Tx) (idempotency.Response, error) {
		pause(ctx, rand.N(6*time.Millisecond))
		answer, err := effect(key, worker)(ctx, tx)
		pause(ctx, rand.N(6*time.Millisecond))
		return answer, err
	}
}

// collected are the answers of all callers; those to one key must be one.
type collected struct {
	mu      sync.Mutex
	answers map[string]map[string]bool
}

func (c *collected) add(key string, answer idempotency.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers == nil {
		c.answers = map[string]map[string]bool{}
	}
	if c.answers[key] == nil {
		c.answers[key] = map[string]bool{}
	}
	c.answers[key][fmt.Sprint(answer.Status, answer.Header, string(answer.Body))] = true
}

func requireOneEffectEach(t *testing.T, db *testenv.Database, keys int, c *collected) {
	t.Helper()
	var rows, distinct, completed int
	require.NoError(t, db.QueryRow(t, `SELECT count(*), count(DISTINCT key) FROM effects`).Scan(&rows, &distinct))
	require.NoError(t, db.QueryRow(t,
		`SELECT count(*) FROM walrelay_kit.idempotency_keys WHERE state = 'completed'`).Scan(&completed))
	require.Equal(t, []int{keys, keys, keys}, []int{rows, distinct, completed})
	require.Len(t, c.answers, keys)
	for key, answers := range c.answers {
		require.Len(t, answers, 1, key)
	}
}

// Backends die at random moments while several callers insist on each key.
func TestRun_KilledBackends(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		db := newDatabase(t, major)
		config, err := pgxpool.ParseConfig(db.DSN + "&application_name=victim")
		require.NoError(t, err)
		config.MaxConns = 8
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		defer pool.Close()
		ctx, cancel := context.WithTimeout(t.Context(), crashLimit)
		defer cancel()

		const keys, callers = 120, 3
		var all collected
		var working sync.WaitGroup
		var killed atomic.Int64
		var takeover atomic.Bool
		for worker := range callers {
			for part := range 2 {
				working.Go(func() {
					for i := part; (i < keys || killed.Load() <= crashKills || !takeover.Load()) && ctx.Err() == nil; i += 2 {
						key, r := crashRequest(i)
						all.add(key, persist(ctx, pool, r, slowly(key, fmt.Sprint(worker))))
					}
				})
			}
		}
		done := make(chan struct{})
		var killer sync.WaitGroup
		killer.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				tag, err := db.Conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
					WHERE application_name = 'victim' ORDER BY random() LIMIT 1`)
				if err == nil {
					killed.Add(tag.RowsAffected())
				}
				var taken bool
				err = db.Conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM walrelay_kit.idempotency_keys WHERE token > 1)`).
					Scan(&taken)
				takeover.Store(err == nil && taken)
				pause(ctx, rand.N(10*time.Millisecond))
			}
		})
		working.Wait()
		close(done)
		killer.Wait()
		require.NoError(t, ctx.Err(), "no key may be stuck")
		require.GreaterOrEqual(t, len(all.answers), keys)
		requireOneEffectEach(t, db, len(all.answers), &all)
		t.Logf("%d backends killed, %d keys", killed.Load(), len(all.answers))
	})
}

const (
	childKeys  = 60
	childShare = 10 // of them is what one child gets to
)

// beChild works through some of the keys, and at the last one until it is killed.
func beChild(dsn string) int {
	ctx, cancel := context.WithTimeout(context.Background(), crashLimit)
	defer cancel()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return 1
	}
	defer pool.Close()
	for n, i := range rand.Perm(childKeys)[:childShare] {
		key, r := crashRequest(i)
		persist(ctx, pool, r, func(ctx context.Context, tx pgx.Tx) (idempotency.Response, error) {
			answer, err := slowly(key, "child")(ctx, tx)
			if n == childShare-1 {
				<-ctx.Done()
			}
			return answer, err
		})
	}
	return 0
}

// Whole processes die, and the clients that waited for them turn to others.
func TestRun_KilledProcesses(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, 18)
	ctx, cancel := context.WithTimeout(t.Context(), crashLimit)
	defer cancel()
	exe, err := os.Executable()
	require.NoError(t, err)

	kills := 0
	for range 20 {
		child := exec.Command(exe)
		child.Env = append(os.Environ(), childDSN+"="+db.DSN)
		require.NoError(t, child.Start())
		require.Eventually(t, func() bool { // it has begun, or there is nothing left to do
			var busy int
			return db.QueryRow(t, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%effects%'`).
				Scan(&busy) == nil && busy > 0 || ctx.Err() != nil
		}, crashLimit, time.Millisecond)
		pause(ctx, rand.N(40*time.Millisecond))
		require.NoError(t, child.Process.Kill())
		if child.Wait() != nil {
			kills++
		}
		var completed int
		require.NoError(t, db.QueryRow(t,
			`SELECT count(*) FROM walrelay_kit.idempotency_keys WHERE state = 'completed'`).Scan(&completed))
		if completed > childKeys*3/4 {
			break
		}
	}
	require.Greater(t, kills, 3)

	var all collected
	var working sync.WaitGroup
	for worker := range 3 {
		working.Go(func() {
			for i := range childKeys {
				key, r := crashRequest(i)
				all.add(key, persist(ctx, db.Conn, r, slowly(key, fmt.Sprint(worker))))
			}
		})
	}
	working.Wait()
	require.NoError(t, ctx.Err(), "no key may be stuck")
	requireOneEffectEach(t, db, childKeys, &all)
	t.Logf("%d processes killed", kills)
}
