package cdc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// examineAt runs all checks with a transaction counting as old from its first moment.
func examineAt(t *testing.T, cfg *Config) []Finding {
	t.Helper()
	e := newExamination(cfg)
	e.openTooLong = 0
	findings := e.run(t.Context(), func(Sample) {})
	requireWhole(t, findings)
	return findings
}

func TestExamine_Transactions(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		about := func(object string) []Finding { // other tests have transactions of their own
			var list []Finding
			for _, f := range examineAt(t, cfg) {
				if strings.Contains(f.Object, object) && f.Level != LevelOK {
					list = append(list, f)
				}
			}
			return list
		}
		conn, err := pgx.Connect(t.Context(), db.DSN)
		require.NoError(t, err)
		var pid int
		_, err = conn.Exec(t.Context(), "BEGIN; INSERT INTO events VALUES (1, 'k')")
		require.NoError(t, err)
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
		object := fmt.Sprintf("server process %d", pid)
		open := about(object)
		require.Len(t, open, 1)
		require.Equal(t, "open-transactions", open[0].Check)
		require.Contains(t, open[0].Found, db.Name)
		absent(t, examine(t, cfg), "open-transactions") // it is young
		carryOut(t, db, open[0].Fix)
		require.Eventually(t, func() bool { return len(about(object)) == 0 }, time.Minute, 10*time.Millisecond)
		_ = conn.Close(t.Context())

		gid := db.Slot(t) + " it's"
		db.Exec(t, "BEGIN; INSERT INTO events VALUES (1, 'k'); PREPARE TRANSACTION "+quoteLiteral(gid))
		prepared := about(fmt.Sprintf("%q", gid))
		require.Len(t, prepared, 1)
		require.Equal(t, "prepared-transactions", prepared[0].Check)
		carryOut(t, db, prepared[0].Fix)
		require.Empty(t, about(gid))
	})
}
