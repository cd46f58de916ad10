package decoder_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/decoder"
)

func TestInsert_NullAndEmpty(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	feed(t, d, begin(commitLSN, committed, 1), outboxRelation(), insert(outboxOID, "1", "order", nil, nil, nil))
	ev := d.Event()
	require.NoError(t, ev.Fault)
	require.Nil(t, ev.Key)
	require.Nil(t, ev.Payload)
	require.Nil(t, ev.Type)

	feed(t, d, insert(outboxOID, "", "", "", "", ""))
	require.NoError(t, ev.Fault)
	for _, v := range [][]byte{ev.ID, ev.Key, ev.Payload, ev.Type, ev.Route[0]} {
		require.NotNil(t, v)
		require.Empty(t, v)
	}
	require.Nil(t, ev.Headers, "not in this table")
}

func TestInsert_Faults(t *testing.T) {
	t.Parallel()
	toast := byte('u')
	tests := map[string]struct {
		row     []any
		fault   string
		partial bool
	}{
		"null id":           {[]any{nil, "order", "k", "T", "p"}, "column id of public.outbox is NULL", false},
		"null route":        {[]any{"1", nil, "k", "T", "p"}, "column aggregatetype of public.outbox is NULL", false},
		"the first of both": {[]any{nil, nil, "k", "T", "p"}, "column id of public.outbox is NULL", false},
		"toast in id": {
			[]any{toast, "order", "k", "T", "p"}, "column id of public.outbox was sent as unchanged in an insert", false,
		},
		"toast in payload": {
			[]any{"1", "order", "k", "T", toast}, "column payload of public.outbox was sent as unchanged in an insert", true,
		},
		"toast behind another": {[]any{"1", nil, "k", "T", toast}, "column aggregatetype of public.outbox is NULL", true},
		"toast in an option": {
			[]any{"1", "order", "k", toast, "p"}, "column type of public.outbox was sent as unchanged in an insert", false,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDecoder()
			feed(t, d, begin(commitLSN, committed, 1), outboxRelation(), insert(outboxOID, test.row...))
			require.EqualError(t, d.Event().Fault, test.fault)
			require.Equal(t, test.partial, d.Event().Partial)
			require.Equal(t, "k", string(d.Event().Key))
			feed(t, d, insert(outboxOID, "1", "order", "k", "T", "p"))
			require.NoError(t, d.Event().Fault, "a fault is its row's own")
			require.False(t, d.Event().Partial)
		})
	}
}

func TestInsert_UnmappedColumnsAreSkipped(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	cols := []col{{name: "a"}}
	row := []any{byte('u')}
	for _, c := range outboxColumns() {
		cols = append(cols, c, col{name: c.name + "_old"})
		row = append(row, c.name, "skipped "+c.name)
	}
	feed(t, d, begin(commitLSN, committed, 1), relation(outboxOID, "public", "outbox", cols...), insert(outboxOID, row...))
	ev := d.Event()
	require.NoError(t, ev.Fault)
	require.Equal(t, "id", string(ev.ID))
	require.Equal(t, "aggregateid", string(ev.Key))
	require.Equal(t, "payload", string(ev.Payload))
	require.Equal(t, "type", string(ev.Type))
	require.Equal(t, "aggregatetype", string(ev.Route[0]))
}

func TestInsert_Bytea(t *testing.T) {
	t.Parallel()
	cols := outboxColumns()
	for i := range cols {
		cols[i].typ = byteaOID
	}
	cols[1].typ = 0 // the route has to be text
	tests := map[string]struct {
		text, payload, fault string
	}{
		"hex":        {`\x00ff41`, "\x00\xffA", ""},
		"upper case": {`\x00FF41`, "\x00\xffA", ""},
		"empty":      {`\x`, "", ""},
		"escape": {
			`\000\377A`, `\000\377A`, "column payload of public.outbox is not in hex format: bytea_output must be hex",
		},
		"plain escape": {
			`secret`, `secret`, "column payload of public.outbox is not in hex format: bytea_output must be hex",
		},
		"empty escape": {``, ``, "column payload of public.outbox is not in hex format: bytea_output must be hex"},
		"odd":          {`\x123`, `\x123`, "column payload of public.outbox is not valid hex"},
		"not hex":      {`\x12zz`, `\x12zz`, "column payload of public.outbox is not valid hex"},
		"large":        {`\x` + strings.Repeat("2a", 3<<20), strings.Repeat("*", 3<<20), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDecoder()
			feed(t, d, begin(commitLSN, committed, 1), relation(outboxOID, "public", "outbox", cols...))
			for range 2 {
				wal := insert(outboxOID, `\x31`, "order", `\x41`, `\x54`, test.text)
				before := string(wal)
				feed(t, d, wal)
				ev := d.Event()
				require.NotNil(t, ev.Payload)
				require.Equal(t, test.payload, string(ev.Payload))
				require.Equal(t, `\x31\x54`, string(ev.ID)+string(ev.Type), "only payload and key are decoded")
				require.Equal(t, "A", string(ev.Key))
				require.Equal(t, test.fault != "", ev.Partial)
				require.Equal(t, before, string(wal), "the input is left as it is")
				if test.fault == "" {
					require.NoError(t, ev.Fault)
				} else {
					require.EqualError(t, ev.Fault, test.fault)
				}
				wal = insert(outboxOID, `\x31`, "order", test.text, "T", `\x42`) // the same in the key
				feed(t, d, wal)
				require.Equal(t, test.payload, string(ev.Key))
				require.Equal(t, "B", string(ev.Payload))
				require.Equal(t, test.fault != "", ev.Partial)
				if test.fault != "" {
					require.EqualError(t, ev.Fault, strings.Replace(test.fault, "payload", "aggregateid", 1))
				}
			}
			feed(t, d, insert(outboxOID, "1", "order", nil, "T", nil))
			require.Nil(t, d.Event().Payload)
			require.NoError(t, d.Event().Fault)
		})
	}
}

// TestInsert_TextIsUntouched lets payloads pass that look like something else.
func TestInsert_TextIsUntouched(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	feed(t, d, begin(commitLSN, committed, 1), outboxRelation())
	for _, text := range []string{`\x4142`, `{"b": 1, "a":9007199254740993,  "a":2}`, "infinity", "\xff\xfe", "a\x00b"} {
		feed(t, d, insert(outboxOID, "1", "order", "k", "T", text))
		require.Equal(t, text, string(d.Event().Payload))
	}
}

func TestInsert_SlicesCannotReachBeyond(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	wal := insert(outboxOID, "1", "order", "k", "T", "p")
	before := string(wal)
	feed(t, d, begin(commitLSN, committed, 1), outboxRelation(), wal)
	_ = append(d.Event().ID, "overwrite"...)
	require.Equal(t, before, string(wal))
}

func TestInsert_DoesNotAllocate(t *testing.T) {
	cols := append(outboxColumns(), col{name: "headers"}, col{name: "unmapped"}, col{name: "created_at"})
	cols[2].typ, cols[4].typ = byteaOID, byteaOID
	d := newDecoder()
	feed(t, d, begin(commitLSN, committed, 1), relation(outboxOID, "public", "outbox", cols...),
		relation(9, "public", "other", col{name: "id"}))
	require.NoError(t, d.Ignore(9))
	event := insert(outboxOID, "1", "order", `\x6b`, "T", `\x`+strings.Repeat("00", 4096), "{}", "skipped", "2026-01-02")
	foreign := insert(9, "1")
	changed := deletion(9, 'K', "1")
	allocs := testing.AllocsPerRun(1000, func() {
		for _, wal := range []wire{event, foreign, event, changed, event} {
			if _, err := d.Decode(wal); err != nil {
				t.Fatal(err)
			}
		}
	})
	require.Zero(t, allocs)
	require.NoError(t, d.Event().Fault)

	begun, done := begin(commitLSN, committed, 1), commit(commitLSN, endLSN, committed)
	allocs = testing.AllocsPerRun(1000, func() {
		for _, wal := range []wire{done, begun} {
			if _, err := d.Decode(wal); err != nil {
				t.Fatal(err)
			}
		}
	})
	require.Zero(t, allocs, "neither does a transaction")
}

func TestKind_String(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for k := decoder.KindBegin; k <= decoder.KindMessage; k++ {
		require.NotEqual(t, "unknown", k.String())
		seen[k.String()] = true
	}
	require.Len(t, seen, 11)
	require.Equal(t, "unknown", decoder.Kind(0).String())
}
