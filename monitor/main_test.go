package monitor

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

// noon is the local clock of the tests; the database server's is three seconds ahead.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

const ahead = 3 * time.Second

// streaming is a healthy stream.
func streaming() Status {
	now := noon()
	return Status{
		State: Streaming, Since: now.Add(-time.Hour), SystemID: "7", Epoch: 4, Timeline: 2,
		Received: 0x1_0000_0300, Frontier: 0x1_0000_0200, Confirmed: 0x1_0000_0100,
		InFlightEvents: 5, InFlightBytes: 5000,
		OldestUnsettled: now.Add(ahead - 2*time.Second), ClockOffset: ahead,
		LastReceived: now.Add(-time.Second), LastEvent: now.Add(-1500 * time.Millisecond),
		LastProgress: now.Add(-2 * time.Second), LastConfirmed: now.Add(-3 * time.Second), LastTick: now,
		Transactions: 70, Events: 700, Reconnects: 1, Diverged: 9,
		Ignored: map[string]uint64{"update": 3, "odd": 1}, Poison: map[string]uint64{"skipped": 2},
		Errors: map[string]uint64{"kafka": 6},
	}
}

func healthyLag() Lag {
	return Lag{
		Current: 0x1_0000_0400, ConfirmedFlush: 0x1_0000_0100, Restart: 0x1_0000_0000,
		ConfirmedBytes: 0x300, RetainedBytes: 0x400, Active: true, WALStatus: "reserved", SafeWALBytes: new(int64(4096)),
		CatalogXminAge: 12, Instances: []Instance{
			{PID: 42, Active: true, Application: "walrelay", Client: "10.0.0.3", Since: noon(), State: "streaming"},
			{PID: 43, Application: "walrelay standby orders_slot", Client: "10.0.0.4", Since: noon()},
		}, ServerTime: noon().Add(ahead),
	}
}

// fixture is a server whose stream and database can be changed.
type fixture struct {
	*Server
	status atomic.Pointer[Status]
	lag    atomic.Pointer[Lag] // nil: the database does not answer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureWith(t, func(*Config) {})
}

func newFixtureWith(t *testing.T, change func(*Config)) *fixture {
	t.Helper()
	f := &fixture{}
	status, lag := streaming(), healthyLag()
	f.status.Store(&status)
	f.lag.Store(&lag)
	cfg := Config{
		Addr: "127.0.0.1:0", Stream: "orders", Slot: "orders_slot", Version: "v1", Revision: "abc",
		Status: func() Status { return *f.status.Load() },
		Lag: func(context.Context) (Lag, error) {
			if lag := f.lag.Load(); lag != nil {
				return *lag, nil
			}
			return Lag{}, errors.New("connection refused")
		},
		Limits: Limits{Progress: time.Minute, Confirm: time.Minute, Receive: 30 * time.Second, Tick: 2 * time.Minute},
		Logger: zap.NewNop(), Now: noon,
	}
	change(&cfg)
	server, err := New(cfg)
	require.NoError(t, err)
	f.Server = server
	return f
}
