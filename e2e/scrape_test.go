package e2e

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// Every metric that an alert or a panel names is in a scrape of the program, with a topic missing, the slot's log
// limited and retention on, since some are there only then; and every one carries stream and slot.
func TestScrape_HasWhatAlertsAndPanelsName(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, 18, testenv.Config{
		Settings: map[string]string{"max_slot_wal_keep_size": "1GB"},
	})
	s := newSetup(t, server, testenv.Kafka(t), 1)
	s.set("WALRELAY_RETENTION", "24h")
	s.db.Exec(t, "CREATE INDEX ON public.outbox (created_at)") // tells the oldest row
	s.relay()
	s.insert(1, "k", "{}")
	require.Eventually(t, func() bool { return s.metric("walrelay_events_total", "") == 1 }, wait, tick)
	s.db.Exec(t, `INSERT INTO public.outbox (aggregatetype, aggregateid, type, payload)
		VALUES ('missing', 'k', 't', '{}')`)
	named := make(map[string]bool)
	for _, path := range []string{"../deploy/prometheus/alerts.yaml", "../deploy/grafana/walrelay.json"} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`\b(?:walrelay|process)_\w+`).FindAllString(string(text), -1) {
			named[name] = true
		}
	}
	require.Greater(t, len(named), 30)
	for name := range named {
		var sample string
		require.Eventually(t, func() bool { // some come with what they measure
			_, scrape := s.get("/metrics")
			sample = regexp.MustCompile(`(?m)^` + name + `(?:\{.*\})? .*$`).FindString(scrape)
			return sample != ""
		}, wait, tick, name)
		if strings.HasPrefix(name, "walrelay_") {
			require.Contains(t, sample, `slot="`+s.slot+`"`)
			require.Contains(t, sample, `stream="`+s.slot+`"`)
		}
	}
}
