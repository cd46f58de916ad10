package retention

import (
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestEndOf(t *testing.T) {
	t.Parallel()
	const page, segment = 8192, 16 << 20
	for insert, want := range map[pglogrepl.LSN]pglogrepl.LSN{
		3*segment + 40:        3 * segment,
		3*segment + 48:        3*segment + 48,
		3*segment + 24:        3*segment + 24, // nothing ends there
		3*segment + page + 24: 3*segment + page,
		3*segment + page + 32: 3*segment + page + 32,
		3*segment + page + 40: 3*segment + page + 40, // the end of a record that began on the page before
		3*segment + 4096:      3*segment + 4096,
	} {
		require.Equal(t, want, endOf(insert, page, segment), insert)
	}
}

// A record that fills its page to the end is covered by what the server has flushed, though nothing follows it.
func TestFence_AtTheEndOfAPage(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		// Nobody else writes: no logical log, of which the background writer would note the running transactions.
		server := testenv.StartPostgres(t, major, testenv.Config{Settings: map[string]string{
			"wal_level": "minimal", "max_wal_senders": "0", "autovacuum": "off", "checkpoint_timeout": "1h",
		}})
		db := server.Database(t)
		position := func() (at pglogrepl.LSN) {
			require.NoError(t, db.QueryRow(t, "SELECT pg_current_wal_insert_lsn()::text").Scan(&at))
			return at
		}
		emit := func(bytes int) {
			db.Exec(t, "SELECT pg_logical_emit_message(false, 'x', repeat('x', $1))", bytes)
		}
		conn, err := pgx.Connect(t.Context(), db.DSN)
		require.NoError(t, err)
		defer func() { _ = conn.Close(t.Context()) }()
		_, err = fence(t.Context(), conn) // which reads what it needs of the catalog for the first time
		require.NoError(t, err)
		overhead := 0 // of a record that fits on its page
		for overhead == 0 {
			before := position()
			emit(1000)
			if after := position(); after/8192 == before/8192 {
				overhead = int(after-before) - 1000
			}
		}
		require.Eventually(t, func() bool {
			left := 8192 - int(position()%8192)
			if left < 2000 { // of another form, or over the page's end
				emit(left)
				return false
			}
			emit(left - overhead - overhead%8)
			return position()%8192 == pageHeader
		}, wait, tick)

		end, err := fence(t.Context(), conn)
		require.NoError(t, err)
		require.Zero(t, end%8192)
		var flushed pglogrepl.LSN
		require.Eventually(t, func() bool { // the WAL writer does that
			require.NoError(t, db.QueryRow(t, "SELECT pg_current_wal_flush_lsn()::text").Scan(&flushed))
			return flushed >= end
		}, wait, tick)
		require.Equal(t, end, flushed)
		require.Less(t, flushed, position(), "no stream comes to there")
	})
}
