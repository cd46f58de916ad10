package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/inbox"
	"github.com/walrelay/walrelay/kit/tx"
	"github.com/walrelay/walrelay/migrations"
	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

// database has kit's tables and a table of effects, one row for each time that one took place.
func database(t *testing.T, major int) *testenv.Database {
	t.Helper()
	testenv.StayWithin(t, day, 2*time.Minute) // tests count its partitions
	db := testenv.Postgres(t, major).Database(t)
	_, err := migrations.UpKit(t.Context(), db.Standard(t))
	require.NoError(t, err)
	db.Exec(t, `CREATE TABLE effects (message text NOT NULL);
		CREATE TABLE payments (message text CONSTRAINT payments_once UNIQUE);
		CREATE TABLE orders (message text PRIMARY KEY, state text NOT NULL);
		INSERT INTO orders SELECT 'transition-' || n, 'new' FROM generate_series(0, 20) n`)
	conn, err := db.Conn.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, _, err = partitions().Maintain(t.Context(), conn.Conn())
	require.NoError(t, err)
	return db
}

func partitions() inbox.Partitions {
	return inbox.Partitions{
		Retention: inbox.Retention{Keep: 4 * 24 * time.Hour, RetryWindow: 3 * 24 * time.Hour},
		Width:     24 * time.Hour,
	}
}

// recorders are all the ways to remember a message.
func recorders() map[string]inbox.Recorder {
	return map[string]inbox.Recorder{
		"table":      inbox.Table{},
		"partitions": partitions(),
		"high water": inbox.HighWater{},
		"unique": inbox.RecorderFunc(func(ctx context.Context, t tx.Tx, m inbox.Message) (inbox.Outcome, error) {
			return inbox.Unique(ctx, t, "payments_once", func(ctx context.Context, t tx.Tx) error {
				_, err := t.Exec(ctx, "INSERT INTO payments VALUES ($1)", m.ID)
				return err
			})
		}),
		"on conflict": inbox.RecorderFunc(func(ctx context.Context, t tx.Tx, m inbox.Message) (inbox.Outcome, error) {
			return inbox.Affected(t.Exec(ctx, "INSERT INTO payments VALUES ($1) ON CONFLICT (message) DO NOTHING", m.ID))
		}),
		"transition": inbox.RecorderFunc(func(ctx context.Context, t tx.Tx, m inbox.Message) (inbox.Outcome, error) {
			return inbox.Transition(ctx, t, "UPDATE orders SET state = 'paid' WHERE message = $1 AND state = 'new'",
				"SELECT state IN ('paid', 'shipped') FROM orders WHERE message = $1", m.ID)
		}),
	}
}

// forRecorders runs a subtest for each on the same database; their messages have the name in their ids.
func forRecorders(t *testing.T, test func(t *testing.T, r inbox.Recorder, message func(n int) inbox.Message)) {
	t.Helper()
	for name, r := range recorders() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, r, func(n int) inbox.Message {
				m := message(n)
				m.ID = fmt.Sprintf("%s-%d", name, n)
				return m
			})
		})
	}
}

// message has all that any recorder needs.
func message(n int) inbox.Message {
	return inbox.Message{
		Consumer: "billing", ID: fmt.Sprintf("m-%d", n),
		Stream: "shop", Topic: "orders", Partition: 3, Position: position(1, n),
		Time: today.Add(time.Duration(n) * time.Second),
	}
}

// today is one day for all that a test delivers again, also when another begins meanwhile.
var today = time.Now().Truncate(day)

func position(epoch, n int) inbox.Position {
	return inbox.Position(fmt.Sprintf("%08X-00000001-%016X-00000000", epoch, 0xFF0+n))
}

func apply(m inbox.Message) inbox.Effect {
	return func(ctx context.Context, t tx.Tx) error {
		_, err := t.Exec(ctx, "INSERT INTO effects VALUES ($1)", m.ID)
		return err
	}
}

func effects(t *testing.T, db *testenv.Database, m inbox.Message) (count int) {
	t.Helper()
	require.NoError(t, db.QueryRow(t, "SELECT count(*) FROM effects WHERE message = $1", m.ID).Scan(&count))
	return count
}

func TestDo(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		db := database(t, major)
		forRecorders(t, func(t *testing.T, r inbox.Recorder, message func(n int) inbox.Message) {
			ctx := t.Context()
			for n := range 3 {
				m := message(n)
				outcome, err := inbox.Do(ctx, db.Conn, r, m, apply(m))
				require.NoError(t, err)
				require.Equal(t, inbox.Applied, outcome)
			}
			for n := range 3 {
				m := message(n)
				outcome, err := inbox.Do(ctx, db.Conn, r, m, apply(m))
				require.NoError(t, err)
				require.Equal(t, inbox.Duplicate, outcome)
				require.Equal(t, 1, effects(t, db, m))
			}
		})
	})
}

// A failed effect takes its record along.
func TestDo_EffectFails(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	forRecorders(t, func(t *testing.T, r inbox.Recorder, message func(n int) inbox.Message) {
		ctx, m := t.Context(), message(1)
		broken := errors.New("broken")
		outcome, err := inbox.Do(ctx, db.Conn, r, m, func(ctx context.Context, t tx.Tx) error {
			return errors.Join(apply(m)(ctx, t), broken)
		})
		require.ErrorIs(t, err, broken)
		require.Equal(t, inbox.Undone, outcome)
		require.Zero(t, effects(t, db, m))
		outcome, err = inbox.Do(ctx, db.Conn, r, m, apply(m))
		require.NoError(t, err)
		require.Equal(t, inbox.Applied, outcome)
	})
}

// An effect that hides a statement's error has not taken place, and must not look as if.
func TestDo_EffectHidesError(t *testing.T) {
	t.Parallel()
	db, m := database(t, 18), message(1)
	outcome, err := inbox.Do(t.Context(), db.Conn, inbox.Table{}, m, func(ctx context.Context, t tx.Tx) error {
		_, _ = t.Exec(ctx, "SELECT 1 / 0")
		return nil
	})
	require.ErrorIs(t, err, pgx.ErrTxCommitRollback)
	require.Equal(t, inbox.Undone, outcome)
}

func TestDo_Incomplete(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	for _, m := range []inbox.Message{{ID: "1"}, {Consumer: "a"}} {
		_, err := inbox.Do(t.Context(), db.Conn, inbox.Table{}, m, nil)
		require.ErrorIs(t, err, inbox.ErrIncomplete)
		_, err = inbox.Parking{After: 1}.Do(t.Context(), db.Conn, inbox.Table{}, m, nil)
		require.ErrorIs(t, err, inbox.ErrIncomplete)
	}
	_, err := inbox.Do(t.Context(), db.Conn, partitions(), inbox.Message{Consumer: "a", ID: "1"}, nil)
	require.ErrorIs(t, err, inbox.ErrIncomplete)
	_, err = inbox.Do(t.Context(), db.Conn, inbox.HighWater{},
		inbox.Message{Consumer: "a", ID: "1", Position: position(1, 1)}, nil)
	require.ErrorIs(t, err, inbox.ErrIncomplete)
}

// Many consumers apply the same messages at the same time: one effect each, whatever the isolation.
func TestDo_Race(t *testing.T) {
	t.Parallel()
	const consumers, messages = 8, 12
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			db := database(t, 18)
			forRecorders(t, func(t *testing.T, r inbox.Recorder, message func(n int) inbox.Message) {
				config, err := pgxpool.ParseConfig(db.DSN)
				require.NoError(t, err)
				config.MaxConns = consumers
				config.ConnConfig.RuntimeParams["default_transaction_isolation"] = isolation
				pool, err := pgxpool.NewWithConfig(t.Context(), config)
				require.NoError(t, err)
				defer pool.Close()
				var applied, duplicates atomic.Int64
				var wg sync.WaitGroup
				for range consumers {
					wg.Go(func() {
						for n := range messages {
							m := message(n)
							outcome, err := inbox.Do(t.Context(), pool, r, m, apply(m))
							if err != nil {
								t.Errorf("apply %s: %v", m.ID, err)
							}
							switch outcome {
							case inbox.Applied:
								applied.Add(1)
							case inbox.Duplicate:
								duplicates.Add(1)
							}
						}
					})
				}
				wg.Wait()
				require.EqualValues(t, messages, applied.Load())
				require.EqualValues(t, (consumers-1)*messages, duplicates.Load())
				for n := range messages {
					require.Equal(t, 1, effects(t, db, message(n)))
				}
			})
		})
	}
}

// The second delivery waits on the first one's row and then does as that one ended.
func TestDo_WaitsForTheOther(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprintf("commit %t", commit), func(t *testing.T) {
			t.Parallel()
			db := database(t, 18)
			forRecorders(t, func(t *testing.T, r inbox.Recorder, message func(n int) inbox.Message) {
				ctx, m := t.Context(), message(1)
				first, err := db.Conn.Begin(ctx)
				require.NoError(t, err)
				defer func() { _ = first.Rollback(context.Background()) }()
				outcome, err := inbox.Once(ctx, first, r, m, apply(m))
				require.NoError(t, err)
				require.Equal(t, inbox.Applied, outcome)

				second := make(chan inbox.Outcome, 1) // the goroutine's only answer
				go func() {
					outcome, err := inbox.Do(ctx, db.Conn, r, m, apply(m))
					if err != nil {
						t.Errorf("second delivery: %v", err)
					}
					second <- outcome
				}()
				require.Eventually(t, func() bool {
					var waits bool
					err := db.QueryRow(t, `SELECT EXISTS (SELECT FROM pg_stat_activity
						WHERE $1 = ANY (pg_blocking_pids(pid)))`, int32(first.Conn().PgConn().PID())).Scan(&waits)
					return err == nil && waits
				}, 20*time.Second, 10*time.Millisecond)
				if commit {
					require.NoError(t, first.Commit(ctx))
					require.Equal(t, inbox.Duplicate, <-second)
				} else {
					require.NoError(t, first.Rollback(ctx))
					require.Equal(t, inbox.Applied, <-second)
				}
				require.Equal(t, 1, effects(t, db, m))
			})
		})
	}
}

// A connection that is killed between the record and the commit leaves neither record nor effect.
func TestDo_Killed(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		db := database(t, major)
		forRecorders(t, func(t *testing.T, r inbox.Recorder, message func(n int) inbox.Message) {
			ctx, m := t.Context(), message(1)
			outcome, err := inbox.Do(ctx, db.Conn, r, m, func(ctx context.Context, t tx.Tx) error {
				if err := apply(m)(ctx, t); err != nil {
					return err
				}
				var pid int
				if err := t.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
					return err
				}
				_, err := db.Conn.Exec(ctx, "SELECT pg_terminate_backend($1)", pid)
				return err
			})
			require.Error(t, err)
			require.Equal(t, inbox.Undone, outcome)
			require.Zero(t, effects(t, db, m))
			outcome, err = inbox.Do(ctx, db.Conn, r, m, apply(m))
			require.NoError(t, err)
			require.Equal(t, inbox.Applied, outcome)
			require.Equal(t, 1, effects(t, db, m))
		})
	})
}

// deaf loses the answer to every COMMIT.
type deaf struct{ *pgxpool.Pool }

type deafTx struct{ pgx.Tx }

var errNoAnswer = errors.New("no answer")

func (d deaf) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	t, err := d.Pool.BeginTx(ctx, options)
	return deafTx{t}, err
}

func (d deafTx) Commit(ctx context.Context) error { return errors.Join(d.Tx.Commit(ctx), errNoAnswer) }

func TestDo_AnswerToCommitLost(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	forRecorders(t, func(t *testing.T, r inbox.Recorder, message func(n int) inbox.Message) {
		ctx, m := t.Context(), message(1)
		outcome, err := inbox.Do(ctx, deaf{db.Conn}, r, m, apply(m))
		require.ErrorIs(t, err, errNoAnswer)
		require.Equal(t, inbox.Undone, outcome)
		outcome, err = inbox.Do(ctx, db.Conn, r, m, apply(m))
		require.NoError(t, err)
		require.Equal(t, inbox.Duplicate, outcome)
		require.Equal(t, 1, effects(t, db, m))
	})
}

// The same through database/sql, in a transaction of the caller's.
func TestOnce_Std(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	forRecorders(t, func(t *testing.T, r inbox.Recorder, message func(n int) inbox.Message) {
		m := message(1)
		handle := stdlib.OpenDBFromPool(db.Conn)
		defer func() { _ = handle.Close() }()
		for _, want := range []inbox.Outcome{inbox.Applied, inbox.Duplicate} {
			std, err := handle.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			outcome, err := inbox.Once(t.Context(), tx.Std(std), r, m, apply(m))
			require.NoError(t, err)
			require.Equal(t, want, outcome)
			require.NoError(t, std.Commit())
		}
		require.Equal(t, 1, effects(t, db, m))
	})
}

// A caller that loses its patience gets its connection back and leaves nothing behind.
func TestDo_Cancelled(t *testing.T) {
	t.Parallel()
	db, m := database(t, 18), message(1)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := inbox.Do(ctx, db.Conn, inbox.Table{}, m, func(ctx context.Context, t tx.Tx) error {
		cancel()
		return apply(m)(ctx, t)
	})
	require.ErrorIs(t, err, context.Canceled)
	outcome, err := inbox.Do(t.Context(), db.Conn, inbox.Table{}, m, apply(m))
	require.NoError(t, err)
	require.Equal(t, inbox.Applied, outcome)
}

func TestOutcome_String(t *testing.T) {
	t.Parallel()
	require.Equal(t, "applied duplicate parked undone outcome 9\n",
		fmt.Sprintln(inbox.Applied, inbox.Duplicate, inbox.Parked, inbox.Undone, inbox.Outcome(9)))
}
