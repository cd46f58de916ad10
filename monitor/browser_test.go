package monitor

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// patience is for a browser on a busy machine.
const patience = time.Minute

// browser is an open page, with everything that it asked for and complained about.
type browser struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp's handle of the page

	mu       sync.Mutex
	requests []string
	console  []string
}

func openBrowser(t *testing.T) *browser {
	t.Helper()
	b := &browser{t: t, ctx: testenv.Browser(t)}
	require.NoError(t, chromedp.Listen(b.ctx, func(event any) {
		if sent, ok := event.(*network.EventRequestWillBeSent); ok {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.requests = append(b.requests, sent.Request.URL)
		}
	}))
	_, err := chromedp.Call(b.ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	messages := chromedp.Console(b.ctx)
	go func() {
		for message, err := range messages {
			if err != nil {
				return
			}
			b.mu.Lock()
			b.console = append(b.console, message.String())
			b.mu.Unlock()
		}
	}()
	return b
}

func (b *browser) open(address string) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, chromedp.Navigate("http://"+address+"/")))
}

func (b *browser) evaluate(script string) any {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[any](script))
	require.NoError(b.t, err, script)
	return value
}

// wait waits until the script says true.
func (b *browser) wait(script string) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for b.evaluate(script) != true {
		if time.Now().After(deadline) {
			require.Fail(b.t, "it does not become true", "%s\n%s\n%v", script, b.evaluate("document.body.innerText"), b.console)
		}
		_, err := chromedp.Run(b.ctx, chromedp.Sleep(20*time.Millisecond))
		require.NoError(b.t, err)
	}
}

// shows waits until a part of the page has the text.
func (b *browser) shows(selector, text string) {
	b.t.Helper()
	quoted, err := json.Marshal(text)
	require.NoError(b.t, err)
	b.wait(`!!document.querySelector('` + selector + `')?.textContent.includes(` + string(quoted) + `)`)
}

// behaved requires that the page asked only its own server for what it needs, and complained of nothing but
// what may be expected.
func (b *browser) behaved(address string, expected string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.NotEmpty(b.t, b.requests)
	for _, request := range b.requests {
		ours := strings.HasPrefix(request, "http://"+address+"/")
		require.True(b.t, ours || strings.HasPrefix(request, "data:"), request)
	}
	for _, message := range b.console {
		require.Regexp(b.t, expected, message)
	}
}

// media sets the width and the colour scheme.
func (b *browser) media(width int64, scheme string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 740, DeviceScaleFactor: 1, Mobile: width < 600})
	require.NoError(b.t, err)
	_, err = chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	require.NoError(b.t, err)
}

// screenshot keeps a picture where WALRELAY_TEST_SCREENSHOTS names a directory.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	dir := os.Getenv("WALRELAY_TEST_SCREENSHOTS")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(dir+"/"+name+".png", picture, 0o600))
}

const nothing = `^$`

// points counts those of a chart's curve.
func points(chart string) string {
	return `(document.querySelector('[data-keys^="` + chart + `"] .curve')?.getAttribute('d').match(/[ML]/g) ?? []).length`
}

// faint lists the elements whose text stands out too little: https://www.w3.org/TR/WCAG21/#contrast-minimum.
const faint = `(() => {
  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = channels(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
  };
  const found = [];
  for (const e of document.querySelectorAll('body *:not(script):not(noscript)')) {
    const own = [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim());
    if (!own || !e.getClientRects().length) continue;
    const style = getComputedStyle(e), color = e.closest('svg') ? style.fill : style.color;
    const [a, b] = [luminance(channels(color)), luminance(ground(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(e.tagName + ' ' + e.textContent.slice(0, 40));
  }
  return found;
})()`
