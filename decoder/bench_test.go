package decoder_test

import (
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/walrelay/walrelay/decoder"
)

// benchmarkRow is a row of ordinary size: a uuid and some 300 bytes of JSON.
func benchmarkRow(payload string) wire {
	return insert(outboxOID, "0198c2a4-7f3e-7d21-9c55-3f1d0c2b7a10", "order", "customer-4711", "OrderPlaced", payload)
}

func BenchmarkDecodeInsert(b *testing.B) {
	json := `{"order":4711,"note":"` + strings.Repeat("x", 280) + `"}`
	b.Run("text", func(b *testing.B) { benchmarkDecode(b, textOID, benchmarkRow(json)) })
	b.Run("bytea", func(b *testing.B) { benchmarkDecode(b, byteaOID, benchmarkRow(`\x`+strings.Repeat("2a", 300))) })
	b.Run("pglogrepl", func(b *testing.B) {
		row := benchmarkRow(json)
		b.ReportAllocs()
		b.SetBytes(int64(len(row)))
		for b.Loop() {
			if _, err := pglogrepl.Parse(row); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func benchmarkDecode(b *testing.B, payloadType uint32, row wire) {
	b.Helper()
	cols := outboxColumns()
	cols[4].typ = payloadType
	d := newDecoder()
	for _, m := range []wire{begin(commitLSN, committed, 1), relation(outboxOID, "public", "outbox", cols...)} {
		if _, err := d.Decode(m); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(row)))
	for b.Loop() {
		if _, err := d.Decode(row); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseHeaders(b *testing.B) {
	object := []byte(`{"tenant": "acme", "attempt": 1, "correlation-id": "0198c2a4-7f3e-7d21-9c55-3f1d0c2b7a10"}`)
	ignore := func(_, _ []byte) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := decoder.ParseHeaders(object, ignore); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseTimestamp(b *testing.B) {
	text := []byte("2026-01-02 12:04:05.123456+00")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decoder.ParseTimestamp(text); err != nil {
			b.Fatal(err)
		}
	}
}
