package kit_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

const docs = "../docs/"

// statement is what one of a page's is given, and how many rows it finds or changes.
type statement struct {
	args []any
	rows int64
}

func rows(n int64, args ...any) statement { return statement{args: args, rows: n} }

const (
	before   = "00000001-00000001-0000000000000001-00000000"
	position = "00000001-00000001-0000000000000002-00000000"
)

// page is what its statements, in their order, need and do.
type page struct {
	setup      string
	statements []statement
}

func pages() map[string]page {
	hash, body := make([]byte, 32), []byte("{}")
	const token = int64(1)<<40 | 1
	return map[string]page{
		"patterns.md": {
			setup: `CREATE TABLE stock (sku text PRIMARY KEY, quantity bigint, position text COLLATE "C");
				INSERT INTO stock VALUES ('a', 1, '` + before + `')`,
			statements: []statement{rows(1, "a", 2, position)},
		},
		"patterns/outbox.md": {
			setup: `INSERT INTO outbox (aggregatetype, aggregateid, type, created_at)
				VALUES ('order', '1', 'old', now() - interval '8 days')`,
			statements: []statement{
				rows(1), // a row
				rows(2, []string{"019ad5c2-3c00-7abc-8def-000000000001", "019ad5c2-3c00-7abc-8def-000000000002"},
					[]string{"order", "order"}, []string{"1", "2"}, []string{"paid", "paid"}, []string{"{}", "[]"}),
				rows(1), // a message
				rows(1), // one with a binary envelope
				rows(1), // an id
				rows(1), // retention
			},
		},
		"patterns/inbox.md": {
			setup: `CREATE TABLE payments (request_id text UNIQUE, amount bigint);
				CREATE TABLE orders (id bigint PRIMARY KEY, state text);
				INSERT INTO orders VALUES (1, 'new');
				INSERT INTO walrelay_kit.inbox (consumer, message_id, seen_at) VALUES ('billing', 'old', '2000-01-01');
				INSERT INTO walrelay_kit.inbox_attempts (consumer, message_id, attempts) VALUES ('billing', 'bad', 6);
				CREATE TABLE walrelay_kit.inbox_timed_20260101t0000_20260102t0000 PARTITION OF walrelay_kit.inbox_timed
					FOR VALUES FROM ('2026-01-01 00:00Z') TO ('2026-01-02 00:00Z');
				CREATE TABLE walrelay_kit.inbox_timed_far PARTITION OF walrelay_kit.inbox_timed
					FOR VALUES FROM ('2100-01-01 00:00Z') TO ('2101-01-01 00:00Z')`,
			statements: slices.Concat(
				[]statement{rows(0), rows(1, "m-1"), rows(0)},                            // the table of ids
				[]statement{rows(1)},                                                     // its retention
				[]statement{rows(1, "m-1", time.Date(2100, 1, 2, 0, 0, 0, 0, time.UTC))}, // partitions
				[]statement{rows(0), rows(0), rows(0), rows(0)},                          // come and go
				[]statement{rows(0), rows(1, "shop", "orders", 3, position), rows(0)},    // the mark
				[]statement{rows(1, "r-1", 100)},                                         // the unique constraint
				[]statement{rows(0), rows(0), rows(1, "r-2", 100), rows(0), rows(0)},     // behind a savepoint
				[]statement{rows(1, 1), rows(1, 1)},                                      // the state check
				[]statement{rows(1, "evt_1", body), rows(1, "evt_1", body)},              // webhooks
				[]statement{rows(1, "m-2"), rows(0), rows(1, "m-2"), rows(0)},            // an attempt
				[]statement{rows(1, "bad", "no such order", body)},                       // and the last one
			),
		},
		"patterns/consumer.md": {
			setup: `INSERT INTO walrelay_kit.consumer_positions VALUES ('billing', 'shop', 'orders', 3, '` + before + `')`,
			statements: []statement{
				rows(1, "billing", "orders", []int32{3}),
				rows(1, "billing", "shop", "orders", 3, position, before),
				rows(1, "billing", "shop", "orders", 4, position),
			},
		},
		"patterns/fence.md": {
			setup: `CREATE TABLE account (id bigint, balance bigint, fence bigint);
				INSERT INTO account VALUES (7, 0, 1);
				INSERT INTO walrelay_kit.fences (resource, system_identifier, timeline, counter, holder, expires_at)
				VALUES ('ledger', 1, 1, 1, NULL, NULL), ('leased', 1, 1, 1, 'a', now() + interval '1 hour')`,
			statements: []statement{
				rows(1, "ledger"), // a token
				rows(1, "new"),    // the resource's row
				rows(1, "leased", token),
				rows(1, 100, token, 7),
				rows(1, "ledger", token),
			},
		},
		"patterns/idempotency.md": { // that it agrees with the package, kit/idempotency tests
			setup: `INSERT INTO walrelay_kit.idempotency_keys (scope, key, request_hash, lease_expires_at, created_at)
				VALUES ('shop', 'busy', '', now() + interval '1 hour', now()), ('shop', 'old', '', '2000-01-01', '2000-01-01')`,
			statements: []statement{
				rows(1, "shop", "k", hash, 30),
				rows(1, "shop", "k", hash),
				rows(1, "shop", "k", hash, 1, 201, "{}", body),
				rows(1, "shop", "busy", 1),
				rows(1), // purge
				rows(0), // compact
			},
		},
	}
}

// The SQL for other languages runs, and does what its page says.
func TestDocs_SQL(t *testing.T) {
	t.Parallel()
	known := pages()
	names, err := filepath.Glob(docs + "patterns/*.md")
	require.NoError(t, err)
	for _, path := range append(names, docs+"patterns.md") {
		name := strings.TrimPrefix(path, docs)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, ok := known[name]
			require.True(t, ok, "no arguments for the statements of this page")
			testenv.ForMajors(t, func(t *testing.T, major int) { run(t, major, p, statementsOf(t, path)) })
		})
	}
}

func run(t *testing.T, major int, p page, found []string) {
	t.Helper()
	db := database(t, testenv.Postgres(t, major))
	require.Len(t, found, len(p.statements))
	db.Exec(t, p.setup)
	conn, err := pgx.Connect(t.Context(), db.DSN)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	for i, sql := range found {
		tag, err := conn.Exec(t.Context(), sql, p.statements[i].args...)
		require.NoError(t, err, sql)
		require.Equal(t, p.statements[i].rows, tag.RowsAffected(), sql)
	}
	require.Equal(t, byte('I'), conn.PgConn().TxStatus(), "a transaction is left open")
}

// statementsOf takes the blocks of a page apart. No string in them has a semicolon or two dashes.
func statementsOf(t *testing.T, path string) (statements []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	comment := regexp.MustCompile(`--[^\n]*`)
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for sql := range strings.SplitSeq(comment.ReplaceAllString(block[1], ""), ";") {
			if sql = strings.TrimSpace(sql); sql != "" {
				statements = append(statements, sql)
			}
		}
	}
	return statements
}
