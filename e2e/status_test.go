package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

type shownStatus struct {
	State, Reason, Delivery string
	Epoch                   uint32
	Slot                    struct {
		Exists         bool
		ConfirmedBytes int64 `json:"confirmed_bytes"`
		RetainedBytes  int64 `json:"retained_bytes"`
	}
	SecondsBehind *float64 `json:"seconds_behind"`
	Events        *float64 `json:"events_per_second"`
	Active        *struct {
		PID                 int32
		Application, Client string
	} `json:"active_session"`
	Standbys []struct{ PID int32 } `json:"standbys"`
	Instance *struct{ State, Error string }
	Dead     map[string]int64 `json:"dead_letters"`
	Verdicts map[string]string
}

// shows is what `walrelay status --json` tells.
func (s *setup) shows() (v shownStatus) {
	s.t.Helper()
	require.NoError(s.t, json.Unmarshal([]byte(s.run("status", "--json")), &v))
	return v
}

// told is what it tells once the instance has answered in the time that it is given, and the rates are known.
func (s *setup) told() (v shownStatus) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		v = s.shows()
		return v.Instance.Error == "" && v.Events != nil
	}, wait, tick)
	return v
}

// The status says the same as the stream, in each of its states, and without an instance too.
func TestStatus(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newPoisoned(t, testenv.Postgres(t, major), "stop")
		s.set("WALRELAY_ADMIN_TOKEN", "a-token-of-16-and-more")
		f := follow(s)
		v := s.shows()
		require.Equal(t, "new", v.State)
		require.False(t, v.Slot.Exists)
		require.Contains(t, v.Instance.Error, "refused")

		s.relay()
		f.delivers()
		s.another().start().WaitForLog(t, "standing by", wait)
		v = s.told()
		require.Equal(t, "active", v.State)
		require.Equal(t, "streaming", v.Instance.State)
		require.EqualValues(t, 1, v.Epoch)
		require.Equal(t, "at-least-once", v.Delivery)
		require.NotNil(t, v.SecondsBehind)
		require.Equal(t, "walrelay", v.Active.Application)
		require.Eventually(t, func() bool { return len(s.shows().Standbys) == 1 }, wait, tick)

		text := s.run("status", "--once")
		for _, part := range []string{
			"state         active\n", "active        server process ", "events        0.0/s\n", "reserved: all is there",
		} {
			require.Contains(t, text, part)
		}
		require.NotContains(t, text, "\x1b")
		require.NotContains(t, text+s.run("status"), "a-token")

		s.run("stream", "pause", "--reason", "a test")
		require.Eventually(t, func() bool { // by the status, since /readyz wants the token for the reason
			v = s.shows() // the server lets go of the slot a moment after the instance
			return v.State == "paused" && v.Instance.State == "paused" && v.Active == nil
		}, wait, tick)
		require.Contains(t, v.Reason, ": a test")
		s.run("stream", "resume")

		s.set("WALRELAY_ADMIN_TOKEN", "another-token-of-16")
		require.Eventually(t, func() bool { return strings.Contains(s.shows().Instance.Error, "401") }, wait, tick)
		s.set("WALRELAY_ADMIN_ADDR", "")
		v = s.shows() // from the server alone
		require.Nil(t, v.Instance)
		require.Contains(t, []string{"active", "inactive"}, v.State)
	})
}

// A stuck stream, its verdict and its dead letters; then nobody, no slot, and a lost one.
func TestStatus_Trouble(t *testing.T) {
	t.Parallel()
	s := newPoisoned(t, testenv.Postgres(t, lastMajor()), "stop")
	f := follow(s)
	relay := s.relay()
	f.delivers()
	n := f.number()
	s.insertRow(n, row{aggregate: "no topic", key: "secret-key", payload: `"secret-payload"`})
	at := s.stuck(n, "the topic name has a character")
	v := s.told()
	require.Equal(t, "stuck", v.State)
	require.Contains(t, v.Reason, at.String())
	require.NotContains(t, s.run("status", "--once"), "secret")
	relay.Kill(t)
	s.idle()
	s.run("stream", "release", at.String(), "--verdict", "skip")
	v = s.shows()
	require.Equal(t, "inactive", v.State)
	require.Equal(t, map[string]string{at.String(): "skip"}, v.Verdicts)
	relay = s.relay()
	f.delivers()
	require.Eventually(t, func() bool { return s.shows().Dead["skipped"] == 1 }, wait, tick)
	s.stop(relay)
	s.dropSlot()
	v = s.shows()
	require.Equal(t, "without slot", v.State)

	s.set("WALRELAY_DATABASE_URL", strings.Replace(s.db.DSN, s.db.Name, "nosuchdatabase", 1))
	require.Contains(t, s.fails(1, "status", "--once"), "does not exist")
}
