package idempotency_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/idempotency"
)

// The statements for other languages work, and agree with this package.
func TestSQLOfTheDocs(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, 18)
	statements := documented(t)
	require.Len(t, statements, 6)
	hash := make([]byte, 32)
	var token int64
	claim := func() error {
		return db.QueryRow(t, statements["claim"], "shop", "k", hash, 30).Scan(&token)
	}
	require.NoError(t, claim())
	require.Equal(t, int64(1), token)
	require.ErrorIs(t, claim(), pgx.ErrNoRows)

	tag, err := db.Conn.Exec(t.Context(), statements["release"], "shop", "k", token)
	require.NoError(t, err)
	require.Equal(t, int64(1), tag.RowsAffected())
	require.NoError(t, claim())
	require.Equal(t, int64(2), token)

	complete := func(token int64) int64 {
		tag, err := db.Conn.Exec(t.Context(), statements["complete"],
			"shop", "k", hash, token, 201, `{"Location": ["/1"]}`, []byte("paid"))
		require.NoError(t, err)
		return tag.RowsAffected()
	}
	require.Zero(t, complete(1), "the first owner is late")
	require.Equal(t, int64(1), complete(2))

	// What other languages save, this package replays.
	r := idempotency.Request{Scope: "shop", Key: "k"}
	_, saved, err := idempotency.Acquire(t.Context(), db.Conn, r)
	require.NoError(t, err)
	require.Equal(t, &idempotency.Response{
		Status: 201, Header: map[string][]string{"Location": {"/1"}}, Body: []byte("paid"), Replayed: true,
	}, saved)
	var same, completed, compacted bool
	var seconds, status *int
	var headers, body []byte
	require.NoError(t, db.QueryRow(t, statements["read"], "shop", "k", hash).
		Scan(&same, &completed, &compacted, &seconds, &status, &headers, &body))
	require.Equal(t, []bool{true, true, false}, []bool{same, completed, compacted})

	age(t, db, "k", 25*time.Hour)
	_, err = db.Conn.Exec(t.Context(), statements["compact"])
	require.NoError(t, err)
	_, _, err = idempotency.Acquire(t.Context(), db.Conn, r)
	var gone *idempotency.CompactedError
	require.ErrorAs(t, err, &gone)
	require.True(t, gone.Was(*saved), "the outcome hash is the one of this package")

	db.Exec(t, `UPDATE walrelay_kit.idempotency_keys SET compacted_at = NULL`)
	tag, err = db.Conn.Exec(t.Context(), statements["purge"])
	require.NoError(t, err)
	require.Equal(t, int64(1), tag.RowsAffected())
}

// documented are the statements of the page for other languages, by the name in their first comment.
func documented(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/patterns/idempotency.md")
	require.NoError(t, err)
	statements := map[string]string{}
	for _, block := range strings.Split(string(page), "```sql\n-- ")[1:] {
		text, _, _ := strings.Cut(block, "```")
		name, sql, _ := strings.Cut(text, "\n")
		name, _, _ = strings.Cut(name, ":")
		statements[name] = sql
	}
	return statements
}
