package monitor

import (
	"context"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// hostile is what a row may bring as its event's id or topic.
const hostile = `<img src=x onerror="hostile=1"><script>hostile=2</script>"'&{{.Slot}}`

// stuckOnHostile is a stream whose every text comes from a row.
func stuckOnHostile() *Status {
	status := streaming()
	status.State, status.Reason, status.LastError, status.LastErrorAt = Stuck, hostile, hostile, noon()
	status.StuckOn = &Poison{Position: "00000001-2-3-4", EventID: hostile, Table: hostile, Topic: hostile, Reason: hostile}
	status.Troubles = []Trouble{{Object: "topic " + hostile, Since: noon(), Kind: "missing", Reason: hostile}}
	status.Errors = map[string]uint64{hostile: 1}
	return &status
}

// served is a fixture on the network, on the real clock and with a fast history.
func served(t *testing.T, change func(*Config)) (f *fixture, address string, stop func()) {
	t.Helper()
	return servedAt(t, testenv.Addr(t), change)
}

func servedAt(t *testing.T, address string, change func(*Config)) (f *fixture, at string, stop func()) {
	t.Helper()
	f = newFixtureWith(t, func(cfg *Config) {
		cfg.Now = time.Now
		cfg.Limits = Limits{Progress: time.Hour, Confirm: time.Hour, Receive: time.Hour, Tick: time.Hour}
		change(cfg)
	})
	now := time.Now()
	f.change(func(s *Status) {
		s.Since, s.LastReceived, s.LastEvent, s.LastProgress, s.LastConfirmed, s.LastTick = now, now, now, now, now, now
	})
	f.interval = 500 * time.Millisecond // a page has the last 360 samples: what a test adds stays for three minutes
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx, listener) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return f, listener.Addr().String(), stop
}

// change replaces the status by a changed copy.
func (f *fixture) change(how func(*Status)) {
	status := *f.status.Load()
	how(&status)
	f.status.Store(&status)
}

func TestPage_Live(t *testing.T) {
	t.Parallel()
	f, address, stop := served(t, func(*Config) {})
	b := openBrowser(t)
	b.open(address)
	b.shows(".badge", "✓ ready: streaming")
	b.shows("#figures", "768 B")
	b.shows("#slot", "1/400")
	b.shows("#instances", "process 43 from 10.0.0.4")
	b.wait(`document.title.startsWith('✓ ready: streaming – Stream orders')`)

	// What happens shows up, in figures and curves.
	for i := range 20 {
		f.change(func(s *Status) { s.Events += 100 })
		lag := healthyLag()
		lag.ConfirmedBytes = int64(i) << 20
		f.lag.Store(&lag)
		f.Observer().Acked("orders", 100, []time.Time{time.Now().Add(-20 * time.Millisecond)}, time.Now())
		f.askLag(t.Context()) // as a scrape would
		f.sample()
	}
	b.shows("#figures", "19 MiB")
	charts := []string{"confirmed_bytes", "retained_bytes", "seconds_behind", "events_per_second", "p50_seconds"}
	for _, chart := range charts {
		b.wait(points(chart) + " >= 15")
		alternative := b.evaluate(`document.querySelector('[data-keys^="` + chart + `"] svg').getAttribute('aria-label')`)
		require.Regexp(t, `now|median|read`, alternative)
	}
	b.wait(`document.querySelector('[data-keys="confirmed_bytes"] output').textContent.includes('highest 19 MiB')`)
	b.screenshot("streaming")

	// The history is the server's, so it is there at once after a reload.
	seen := b.evaluate(points("confirmed_bytes")).(float64)
	b.open(address)
	b.wait(points("confirmed_bytes") + " > 0")
	require.GreaterOrEqual(t, b.evaluate(points("confirmed_bytes")), seen)

	// A database that is silent leaves no number behind.
	f.lag.Store(nil)
	b.shows("#figures", "PostgreSQL did not answer")
	require.NotContains(t, b.evaluate(`document.querySelector('#figures').textContent`), "19 MiB")
	b.shows("#slot", "unknown")

	f.change(func(s *Status) { s.State, s.Reason = Connecting, "kafka: no brokers" })
	b.shows(".badge", "✗ not ready: connecting")
	b.shows(".verdict", "kafka: no brokers")
	b.wait(`document.querySelectorAll('.unready').length > 0`)
	b.behaved(address, nothing)

	// A server that is gone takes its values along.
	stop()
	b.shows("#gone", "No answer since")
	b.shows(".badge", "? no answer")
	b.wait(`[...document.querySelectorAll('main .v')].every((v) => v.textContent === '–')`)
	b.wait(`document.title.startsWith('✗ no answer')`)
	b.wait(`document.querySelector('[data-keys="seconds_behind"] output').textContent.includes('not known')`)
	b.screenshot("gone")

	// Another process at the same place has a history of its own.
	servedAt(t, address, func(*Config) {})
	b.shows(".badge", "✓ ready: streaming")
	b.wait(`document.querySelector('#gone').hidden`)
	b.wait(points("seconds_behind") + " >= 2")
	caption := b.evaluate(`document.querySelector('[data-keys="confirmed_bytes"] output').textContent`)
	require.NotContains(t, caption, "19 MiB")
	b.behaved(address, `net::ERR_`)
}

// Ids, topics and reasons come from rows: none is more than text.
func TestPage_HostileRows(t *testing.T) {
	t.Parallel()
	f, address, _ := served(t, func(*Config) {})
	b := openBrowser(t)
	b.open(address)
	b.shows(".badge", "streaming")
	f.status.Store(stuckOnHostile()) // by the script
	b.shows("#attention code", hostile)
	b.shows("pre", "walrelay stream release 00000001-2-3-4 --verdict retry|skip|dead-letter")
	b.screenshot("stuck")
	b.open(address) // by the server
	b.shows("#attention code", hostile)
	require.Equal(t, "undefined", b.evaluate(`typeof hostile`))
	require.EqualValues(t, 0, b.evaluate(`document.querySelectorAll('main img, main script').length`))
	b.behaved(address, nothing)

	// What is selected stays so while other parts change.
	b.evaluate(`getSelection().selectAllChildren(document.querySelector('pre'))`)
	f.change(func(s *Status) { s.InFlightEvents = 4711 })
	b.shows("#figures", "4711")
	require.Contains(t, b.evaluate(`getSelection().toString()`), "walrelay stream release")
}

func TestPage_PhoneAndDesktopInLightAndDark(t *testing.T) {
	t.Parallel()
	f, address, _ := served(t, func(*Config) {})
	status := stuckOnHostile()
	status.LastError = strings.Repeat("averylongwordwithoutspaces", 20)
	f.status.Store(status)
	b := openBrowser(t)
	grounds := make(map[any]bool)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 1280} {
			b.media(width, scheme)
			b.open(address)
			b.shows("#attention", "averylongword")
			b.wait(points("confirmed_bytes") + " > 0")
			require.EqualValues(t, width, b.evaluate(`innerWidth`))
			require.LessOrEqual(t, b.evaluate(`document.documentElement.scrollWidth`), float64(width), "%s %d", scheme, width)
			require.Empty(t, b.evaluate(faint), "contrast below 4.5, %s", scheme)
			grounds[b.evaluate(`getComputedStyle(document.body).backgroundColor`)] = true
			b.screenshot(scheme + map[bool]string{true: "-phone", false: ""}[width < 600])
		}
	}
	require.Len(t, grounds, 2)
	b.behaved(address, nothing)
}

func TestPage_AsksForTheToken(t *testing.T) {
	t.Parallel()
	f, address, _ := served(t, func(cfg *Config) { cfg.Token = always(token) })
	f.status.Store(stuckOnHostile())
	b := openBrowser(t)
	b.open(address)
	b.wait(`!document.querySelector('#unlock').hidden`)
	require.NotContains(t, b.evaluate(`document.body.innerText`), "orders")
	enter := func(text string) {
		b.evaluate(`document.querySelector('#token').value = '` + text + `'`)
		b.evaluate(`document.querySelector('#unlock button').click()`)
	}
	enter("wrong")
	b.shows("#refused", "The server refuses this token.")
	enter(token)
	b.shows("#details", "orders")
	b.wait(`document.querySelector('#unlock').hidden`)
	b.open(address)
	b.shows("#details", "orders")
	b.behaved(address, `401 \(Unauthorized\)`)
}

// The page says something without script, and its policy lets nothing in from elsewhere.
func TestPage_WithoutScript(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.status.Store(stuckOnHostile())
	f.sample()
	answer := f.ask(t, "/", "")
	require.Equal(t, http.StatusOK, answer.Code)
	body := answer.Body.String()
	for _, part := range []string{
		"✗ not ready: stuck", "768 B", "1 KiB", "4 KiB of log", "process 42", "v1", "wal_status", "reserved",
		"&lt;script&gt;hostile=2&lt;/script&gt;", "2026-03-01 12:00:00 UTC",
	} {
		require.Contains(t, body, part)
	}
	require.NotContains(t, body, "<img")
	require.Equal(t, 1, strings.Count(body, "<script>"))
	require.NotRegexp(t, `(src|href)="?(http|//|/)`, body)
	require.NotRegexp(t, `<[^>]+ (style|on[a-z]+)=`, strings.ReplaceAll(body, "&#34;", ""))

	policy := answer.Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.NotContains(t, policy, "unsafe")
	require.NotContains(t, policy, "http")
	for _, element := range []string{"script", "style"} {
		text := regexp.MustCompile(`(?s)<` + element + `>(.*)</` + element + `>`).FindStringSubmatch(body)[1]
		require.Contains(t, policy, element+"-src '"+integrity(text)+"'")
	}
	require.Equal(t, "no-store", answer.Header().Get("Cache-Control"))
}
