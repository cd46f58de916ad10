package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/sink"
)

func TestAdditional(t *testing.T) {
	t.Parallel()
	var a Additional
	require.NoError(t, a.UnmarshalText([]byte("type:header:eventType, n : partition,b:ENVELOPE")))
	require.NoError(t, a.err)
	require.Equal(t, []string{"type", "n", "b"}, a.Columns)
	require.Equal(t, []sink.Placement{
		{Place: sink.InHeader, Name: "eventType"}, {Place: sink.AsPartition, Name: "n"}, {Place: sink.InEnvelope, Name: "b"},
	}, a.Placements)
	for _, wrong := range []string{"a", "a:", ":header", "a:body", "a:header:b:c", "a:header,", "a:header: "} {
		var a Additional
		require.NoError(t, a.UnmarshalText([]byte(wrong)))
		require.Error(t, a.err, wrong)
	}
}

func TestSettings_Shape(t *testing.T) {
	t.Parallel()
	for fault, env := range map[string]map[string]string{
		"needs WALRELAY_VALUE_FORMAT=json":          {"WALRELAY_EXPAND_JSON": "true"},
		"needs WALRELAY_EXPAND_JSON=true":           {"WALRELAY_EXPAND_NULLS": "true"},
		"for an envelope":                           {"WALRELAY_ADDITIONAL_COLUMNS": "a:envelope"},
		"must not name the header eventType":        {"WALRELAY_ADDITIONAL_COLUMNS": "a:header:eventType"},
		"must not name the header id":               {"WALRELAY_ADDITIONAL_COLUMNS": "id:header"},
		"must take the partition from one column":   {"WALRELAY_ADDITIONAL_COLUMNS": "a:partition,b:partition"},
		"must be given together with":               {"WALRELAY_TOPIC_REGEX": ".*"},
		"has no group named":                        {"WALRELAY_TOPIC_REGEX": ".*", "WALRELAY_TOPIC_REPLACEMENT": "${x}"},
		"must be one of raw, json, json-schema":     {"WALRELAY_KEY_FORMAT": "avro"},
		"must be raw with WALRELAY_FORMAT":          {"WALRELAY_FORMAT": "cloudevents-binary", "WALRELAY_KEY_FORMAT": "json"},
		"must list column:header":                   {"WALRELAY_ADDITIONAL_COLUMNS": "a"},
		"must be one of ignore, warn, error, fatal": {"WALRELAY_ON_UPDATE": "no"},
		"second b": {"WALRELAY_VALUE_FORMAT": "json", "WALRELAY_ADDITIONAL_COLUMNS": "a:envelope:b,b:envelope"},
		"second payload": {
			"WALRELAY_VALUE_FORMAT": "json", "WALRELAY_ADDITIONAL_COLUMNS": "payload:envelope",
		},
	} {
		r := execute(t, minimal(pairs(env)...), "config")
		require.NotEqual(t, exitOK, r.code, fault)
		require.Contains(t, r.stderr, fault)
	}
	r := execute(t, minimal(pairs(map[string]string{
		"WALRELAY_VALUE_FORMAT": "json-schema", "WALRELAY_EXPAND_JSON": "true", "WALRELAY_EXPAND_EMPTY_ARRAYS": "true",
		"WALRELAY_ADDITIONAL_COLUMNS": "type:header:eventType,n:partition,a:envelope", "WALRELAY_COLUMN_TYPE": "",
		"WALRELAY_TOPIC": "{aggregatetype}", "WALRELAY_TOPIC_REGEX": "(?<v>.*)", "WALRELAY_TOPIC_REPLACEMENT": "x.${v}",
	})...), "config")
	require.Equal(t, exitOK, r.code, r.stderr)
}

// Whoever sets nothing gets no shape, and the fingerprint that a stream was recorded with.
func TestSettings_RoutingOfShape(t *testing.T) {
	t.Parallel()
	s := &Settings{}
	require.Nil(t, s.shape())
	const plain = `topic="" key="" id=""`
	require.Equal(t, plain, s.routing())
	s.KeyFormat.Text, s.ValueFormat.Text = "raw", "raw"
	require.Nil(t, s.shape())
	s.ValueFormat.Text = "json"
	require.NotNil(t, s.shape())
	require.Equal(t, plain, s.routing(), "the value decides about nothing")
	s.KeyFormat.Text, s.TopicRegex.Text, s.TopicReplacement.Text = "json", "a", "b"
	require.NoError(t, s.AdditionalColumns.UnmarshalText([]byte("x:header,n:partition")))
	require.Equal(t, plain+` regex="a" replacement="b" format="json" partition="n"`, s.routing())
}

func pairs(env map[string]string) []string {
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	return list
}
