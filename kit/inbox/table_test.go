package inbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/kit/inbox"
)

func TestWebhook(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	for _, r := range []inbox.Recorder{inbox.Table{}, partitions()} {
		do := func(provider, id, body string) (inbox.Outcome, error) {
			m := inbox.Webhook(provider, id, []byte(body))
			m.Time = time.Now().Truncate(24 * time.Hour)
			return inbox.Do(t.Context(), db.Conn, r, m, apply(m))
		}
		for _, c := range []struct {
			provider, id, body string
			want               inbox.Outcome
			err                error
		}{
			{"stripe", "evt_1", "{}", inbox.Applied, nil},
			{"stripe", "evt_1", "{}", inbox.Duplicate, nil},
			{"adyen", "evt_1", "[]", inbox.Applied, nil},
			{"stripe", "evt_1", "{ }", inbox.Undone, inbox.ErrBodyChanged},
			{"stripe", "evt_2", "", inbox.Applied, nil},
		} {
			outcome, err := do(c.provider, c.id, c.body)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.want, outcome)
			if err != nil {
				require.NotContains(t, err.Error(), c.body)
			}
		}
	}
}

func TestTable_Expire(t *testing.T) {
	t.Parallel()
	db, ctx := database(t, 18), t.Context()
	db.Exec(t, `INSERT INTO walrelay_kit.inbox (consumer, message_id, seen_at)
		SELECT 'billing', n::text, now() - n * interval '1 hour' FROM generate_series(0, 99) n`)
	keep := inbox.Retention{Keep: 30*time.Hour - time.Minute, RetryWindow: 24 * time.Hour}
	for _, want := range []int64{50, 20, 0} {
		deleted, err := inbox.Table{}.Expire(ctx, db.Conn, keep, 50)
		require.NoError(t, err)
		require.Equal(t, want, deleted)
	}
	var left int
	require.NoError(t, db.QueryRow(t, "SELECT count(*) FROM walrelay_kit.inbox").Scan(&left))
	require.Equal(t, 30, left)
}

func TestRetention(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		keep, window time.Duration
		ok           bool
	}{
		{2 * day, day, true},
		{day + 1, day, true},
		{day, day, false},
		{day, 2 * day, false},
		{day, 0, false},
		{0, 0, false},
		{day, -1, false},
	} {
		err := inbox.Retention{Keep: c.keep, RetryWindow: c.window}.Validate()
		if c.ok {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, inbox.ErrRetention)
		}
	}
	short := inbox.Retention{Keep: time.Hour, RetryWindow: time.Hour}
	_, err := inbox.Table{}.Expire(t.Context(), nil, short, 1)
	require.ErrorIs(t, err, inbox.ErrRetention)
	_, err = inbox.Parking{}.Expire(t.Context(), nil, short, 1)
	require.ErrorIs(t, err, inbox.ErrRetention)
	_, _, err = inbox.Partitions{Retention: short, Width: time.Hour}.Maintain(t.Context(), nil)
	require.ErrorIs(t, err, inbox.ErrRetention)
	_, err = inbox.Partitions{Retention: short, Width: time.Hour}.Record(t.Context(), nil, inbox.Message{})
	require.ErrorIs(t, err, inbox.ErrRetention)
	for _, width := range []time.Duration{0, time.Minute, time.Hour + time.Second, 3 * time.Hour} {
		_, _, err = inbox.Partitions{
			Retention: inbox.Retention{Keep: 2 * time.Hour, RetryWindow: time.Hour}, Width: width,
		}.Maintain(t.Context(), nil)
		require.ErrorIs(t, err, inbox.ErrWidth, width)
	}
}
