package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

const adminToken = "the-token-of-an-operator"

// An operator's page of two real instances: it asks for the token, shows who streams and who stands by, an event
// that is stuck and its release, and that a killed process is gone.
func TestPage(t *testing.T) {
	t.Parallel()
	browser := testenv.Browser(t)
	s := newSetup(t, testenv.Postgres(t, 18), testenv.StartKafka(t, testenv.KafkaConfig{}), 1)
	s.set("WALRELAY_ADMIN_TOKEN", adminToken)
	active := s.relay()
	second := s.another()
	standby := second.start()
	standby.WaitForLog(t, "standing by", wait)

	shows := func(script string) {
		t.Helper()
		require.Eventually(t, func() bool {
			is, err := chromedp.Run(browser, chromedp.Evaluate[bool](script))
			return err == nil && is
		}, wait, 100*time.Millisecond, script)
	}
	text := func(selector, part string) string {
		return `!!document.querySelector('` + selector + `')?.textContent.includes('` + part + `')`
	}
	t.Cleanup(func() {
		if t.Failed() {
			shown, err := chromedp.Run(browser, chromedp.Evaluate[string](`document.body.innerText`))
			t.Log("the page says:", shown, err)
		}
	})
	require.NoError(t, chromedp.Do(browser, chromedp.Navigate("http://"+s.env["WALRELAY_ADMIN_ADDR"]+"/")))
	shows(`!document.querySelector('#unlock').hidden && !document.body.textContent.includes('` + s.slot + `')`)
	_, err := chromedp.Run(browser, chromedp.Evaluate[any](
		`document.querySelector('#token').value = '`+adminToken+`'; document.querySelector('#unlock button').click()`))
	require.NoError(t, err)
	shows(text(".badge", "✓ ready: streaming"))
	shows(text("#instances li:nth-child(1)", "(this one)"))
	shows(text("#instances li:nth-child(2)", "walrelay standby "))

	s.insert(1, "k", `{"secret": "`+payloadMark+`"}`)
	s.cluster.Consume(t, s.topic).WaitFor(t, 1, wait)
	shows(`/\d/.test(document.querySelector('[data-keys^="p50_seconds"] output').textContent)`)
	shows(`document.querySelector('[data-keys="confirmed_bytes"] .curve').getAttribute('d') !== ''`)

	large := "00000000-0000-0000-0000-00000000beef"
	s.db.Exec(t, `INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT $1, 'orders', 'k', 'created', to_jsonb(string_agg(md5(n::text), '')) FROM generate_series(1, 100000) n`, large)
	shows(text(".badge", "✗ not ready: stuck"))
	shows(text("#attention code", large))
	shows(text("#attention pre", "walrelay stream release "))
	shows(`!document.documentElement.outerHTML.includes('` + payloadMark + `')`)

	active.Kill(t)
	shows(text("#gone", "No answer since"))
	shows(text(".badge", "? no answer"))
	require.NotContains(t, active.Log()+standby.Log(), adminToken)

	// The standby takes over, and meets the same event.
	delete(second.env, "WALRELAY_ADMIN_TOKEN") // from here on it is asked without
	code, body := second.get("/readyz")
	require.Contains(t, []int{http.StatusOK, http.StatusServiceUnavailable}, code)
	require.Regexp(t, `^(not )?ready: \w+\n$`, body, "terse without the token")
	code, _ = second.get("/status")
	require.Equal(t, http.StatusUnauthorized, code)
	require.Eventually(t, func() bool {
		_, body := second.get("/readyz")
		return body == "not ready: stuck\n"
	}, wait, 100*time.Millisecond)
}
