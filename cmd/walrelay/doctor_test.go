package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/sink"
)

func TestDoctor_WrongConfiguration(t *testing.T) {
	t.Parallel()
	r := execute(t, minimal("WALRELAY_SLOT=No Slot"), "doctor")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "WALRELAY_SLOT")
	require.Empty(t, r.stdout)
	require.Equal(t, exitUsage, execute(t, nil, "doctor", "--json").code)
}

// With nothing to be reached it says so, of both sides, and shows no secret.
func TestDoctor_NothingAnswers(t *testing.T) {
	t.Parallel()
	env := []string{
		"WALRELAY_DATABASE_URL=postgres://relay:hunter2@127.0.0.1:1/shop?sslmode=disable",
		"WALRELAY_KAFKA_BROKERS=127.0.0.1:1",
	}
	r := execute(t, env, "doctor", "--json")
	require.Equal(t, exitError, r.code, r.stderr)
	require.NotContains(t, r.stdout+r.stderr, "hunter2")
	var printed struct {
		Findings []map[string]string
		Summary  map[string]int
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &printed))
	require.ElementsMatch(t, []string{levelOK, levelWarning, levelFault, levelUnknown},
		slices.Collect(maps.Keys(printed.Summary)))
	total := 0
	for _, n := range printed.Summary {
		total += n
	}
	require.Len(t, printed.Findings, total)
	sides := map[string]int{}
	for _, f := range printed.Findings {
		require.ElementsMatch(t, []string{"side", "check", "object", "level", "found", "why", "fix"},
			slices.Collect(maps.Keys(f)))
		if f["level"] == levelFault {
			sides[f["side"]]++
		}
	}
	require.Equal(t, 1, sides[sidePostgres])
	require.NotZero(t, sides[sideKafka])

	r = execute(t, env, "doctor")
	require.Equal(t, exitError, r.code)
	require.Empty(t, r.stderr)
	require.Contains(t, r.stdout, "PostgreSQL\n  fault    connection, server: ")
	require.Contains(t, r.stdout, "\n           why: without it nothing is streamed\n           fix: ")
	require.Contains(t, r.stdout, "\nKafka\n")
}

func TestDoctor_HelpSaysWhatFails(t *testing.T) {
	t.Parallel()
	r := execute(t, nil, "doctor", "--help")
	require.Equal(t, exitOK, r.code)
	require.Contains(t, strings.Join(strings.Fields(r.stdout), " "),
		"Warnings, and what could not be looked at, do not fail.")
}

func TestDescribe_ShowsNoValue(t *testing.T) {
	t.Parallel()
	m := &decoder.Mapping{
		Schema: "public", Table: "outbox", ID: "id", Key: "k", Payload: "p", Type: "t", Headers: "h", Route: []string{"r"},
	}
	template, err := sink.ParseTemplate("shop.{r}")
	require.NoError(t, err)
	preview := sink.NewPreview(&sink.Config{Stream: "s", Topic: template})
	rows := decoder.NewRows(m, []decoder.Column{
		{Name: "id"}, {Name: "k"}, {Name: "p"}, {Name: "t"}, {Name: "h", Type: 3802}, {Name: "r"},
	})
	shown := describe(preview.Record(rows.Event([][]byte{
		[]byte("7"), []byte("secret-key"), []byte("secret-payload"), []byte("created"), []byte(`{"tenant":"secret"}`),
		[]byte("orders"),
	})), false)
	require.Contains(t, shown, `topic shop.orders, a key, a payload, id "7", type "created", headers tenant, `)
	require.NotContains(t, shown, "secret")
	shown = describe(preview.Record(rows.Event([][]byte{[]byte("7"), nil, nil, nil, nil, []byte("orders")})), false)
	require.Contains(t, shown, "a null key (the partition comes from the id), no payload (a tombstone)")

	report := previewRows(sink.Config{Stream: "s", Topic: template}, cdc.Sample{Tables: []cdc.SampledTable{{Mapping: m}}})
	require.Equal(t, levelOK, report[0].Level)
}

// A topic without columns is looked at under the name that events go to, after the rules.
func TestProbe_FixedTopicsFollowTheRules(t *testing.T) {
	t.Parallel()
	template, err := sink.ParseTemplate("orders")
	require.NoError(t, err)
	require.NoError(t, template.Rewrite("(.*)", "shop.$1"))
	own, err := decoder.ParseTemplate("audit")
	require.NoError(t, err)
	config := sink.Config{
		Stream: "s", Topic: template, TopicRules: &sink.TopicRules{Map: map[string]string{"audit": "audit.v2"}},
	}
	sample := cdc.Sample{Tables: []cdc.SampledTable{{Mapping: &decoder.Mapping{Topic: own}}}}
	require.Equal(t, []string{"audit.v2", "shop.orders"}, probe(config, sample).Topics)
}
