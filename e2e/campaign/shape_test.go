package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walrelay/walrelay/e2e/judge"
)

func TestSelectShape(t *testing.T) {
	t.Parallel()
	for _, s := range shapes() {
		found, err := selectShape(s.name)
		require.NoError(t, err)
		require.Equal(t, s.about, found.about)
	}
	_, err := selectShape("typo")
	require.ErrorContains(t, err, `"typo", but rows, messages, binary, formats, cloudevents`)
}

const (
	schemaKey   = `{"schema":{"type":"string","optional":true},"payload":"t/1-2"}`
	schemaValue = `{"schema":{"type":"struct","fields":[` +
		`{"type":"struct","fields":[{"type":"int32","optional":true,"field":"n"}],"optional":true,"field":"payload"},` +
		`{"type":"string","optional":false,"field":"what"},{"type":"int32","optional":true,"field":"size"}],` +
		`"optional":false,"name":"x"},"payload":{"payload":{"n":7},"what":"orders","size":7}}`
)

// Each line of what a record of the formats holds is looked at.
func TestReadFormats(t *testing.T) {
	t.Parallel()
	read := func(key, value, shard string) (judge.Event, error) {
		r := &kgo.Record{Topic: prefix + "orders", Partition: 3, Key: []byte(key), Value: []byte(value)}
		r.Headers = []kgo.RecordHeader{{Key: "id", Value: []byte("i")}, {Key: "shard", Value: []byte(shard)}}
		return readFormats(r)
	}
	e, err := read(schemaKey, schemaValue, "3")
	require.NoError(t, err)
	require.Equal(t, judge.Event{ID: "i", Topic: prefix + "orders", Key: []byte("1-2"), Value: []byte(`{"n":7}`)}, e)
	for _, keyless := range []string{`"t/i"`, `null`} {
		e, err = read(strings.Replace(schemaKey, `"t/1-2"`, keyless, 1), schemaValue, "")
		require.NoError(t, err)
		require.Nil(t, e.Key)
	}
	unexpanded := strings.NewReplacer(
		`{"type":"struct","fields":[{"type":"int32","optional":true,"field":"n"}]`, `{"type":"string"`,
		`{"n":7}`, `"{\"n\":7}"`).Replace(schemaValue)
	e, err = read(schemaKey, unexpanded, "3")
	require.NoError(t, err)
	require.Equal(t, `{"n":7}`, string(e.Value))

	for _, change := range [][2]string{
		{`"what":"orders","size":7`, `"size":"orders","what":7`},
		{`"field":"what"`, `"field":"size"`},
		{`"what":"orders"`, `"what":"audits"`},
		{`"size":7`, `"size":8`},
		{`"size":7`, `"size":7,"more":7`},
		{`{"type":"int32","optional":true,"field":"n"}`, `{"type":"string","optional":true,"field":"n"}`},
		{`{"type":"string","optional":false,"field":"what"},`, ``},
		{`"what":"orders"`, `"what":null`},
		{`"type":"int32"`, `"type":"number"`},
		{`}}`, `}`},
	} {
		changed := strings.Replace(schemaValue, change[0], change[1], 1)
		require.NotEqual(t, schemaValue, changed)
		_, err = read(schemaKey, changed, "3")
		require.Error(t, err, change)
	}
	for key, shard := range map[string]string{schemaKey: "2", "null": "3", `"1-2"`: "3", "": "3"} {
		_, err = read(key, schemaValue, shard)
		require.Error(t, err, key)
	}
	_, err = read(schemaKey, schemaValue, "")
	require.Error(t, err)
}

// Every attribute is looked at, in both modes.
func TestReadCloudEvent(t *testing.T) {
	t.Parallel()
	const document = `{"specversion":"1.0","id":"i","source":"` + cloudSource + `","type":"happened",` +
		`"time":"2026-01-02T03:04:05.123456Z","subject":"k","partitionkey":"k","datacontenttype":"application/json",` +
		`"data":{"n": 7}}`
	read := func(document string) (judge.Event, error) {
		return readCloudEvent(&kgo.Record{
			Topic: "t", Key: []byte("k"), Value: []byte(document),
			Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/cloudevents+json; charset=UTF-8")}},
		})
	}
	e, err := read(document)
	require.NoError(t, err)
	require.Equal(t, judge.Event{ID: "i", Topic: "t", Key: []byte("k"), Value: []byte(`{"n": 7}`)}, e)
	e, err = read(strings.Replace(document, `,"datacontenttype":"application/json","data":{"n": 7}`, "", 1))
	require.NoError(t, err)
	require.Nil(t, e.Value)
	for _, change := range [][2]string{
		{`"subject":"k",`, ``},
		{`"id":"i",`, ``},
		{`"happened"`, `"i"`},
		{cloudSource, "/walrelay/campaign"},
		{`,"data":{"n": 7}`, ``},
		{`"specversion":"1.0",`, ``},
	} {
		_, err = read(strings.Replace(document, change[0], change[1], 1))
		require.Error(t, err, change)
	}

	binary := binaries().form.Read
	record := &kgo.Record{Topic: "t", Key: []byte("k"), Value: []byte(notText + "v")}
	for _, h := range [][2]string{
		{"ce_specversion", "1.0"},
		{"ce_id", "i"},
		{"ce_source", cloudSource},
		{"ce_type", "happened"},
		{"ce_time", "2026-01-02T03:04:05.123456Z"},
		{"ce_subject", "k"},
		{"content-type", "application/octet-stream"},
	} {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
	}
	e, err = binary(record)
	require.NoError(t, err)
	require.Equal(t, judge.Event{ID: "i", Topic: "t", Key: []byte("k"), Value: []byte("v")}, e)
	for _, value := range [][]byte{[]byte("v"), nil, bytes.ToUpper([]byte("v" + notText))} {
		record.Value = value
		_, err = binary(record)
		require.Error(t, err)
	}
}
