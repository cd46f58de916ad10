package outbox_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/walrelay/walrelay/kit/outbox"
)

func TestNewID_Grows(t *testing.T) {
	t.Parallel()
	var (
		mu  sync.Mutex
		all []string
		wg  sync.WaitGroup
	)
	for range 8 {
		wg.Go(func() {
			var ids []string
			for range 10_000 {
				ids = append(ids, outbox.NewID())
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, ids...)
			if !slices.IsSorted(ids) {
				t.Error("an id is not greater than the one before")
			}
		})
	}
	wg.Wait()
	slices.Sort(all)
	require.Len(t, slices.Compact(all), 80_000)
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, all[0])
}

// The time can be read from it, as uuid_extract_timestamp does.
func TestNewID_HoldsTheTime(t *testing.T) {
	t.Parallel()
	db := database(t, 18)
	var at time.Time
	require.NoError(t, db.QueryRow(t, `SELECT uuid_extract_timestamp($1::text::uuid)`, outbox.NewID()).Scan(&at))
	require.WithinDuration(t, time.Now(), at, time.Minute)
}

// docs/patterns/outbox.md gives this SQL to other languages.
func TestNamespace_SameInSQL(t *testing.T) {
	t.Parallel()
	db := database(t, 14)
	for _, parts := range [][]string{{"order", "4711", "paid"}, {"Straße", ""}, {}} {
		var id string
		require.NoError(t, db.QueryRow(t, `
			SELECT encode(set_byte(set_byte(h, 6, get_byte(h, 6) & 15 | 128), 8, get_byte(h, 8) & 63 | 128), 'hex')::uuid::text
			FROM (
				SELECT substr(sha256(convert_to(string_agg(octet_length(convert_to(part, 'UTF8')) || ':' || part || ',', ''
					ORDER BY n), 'UTF8')), 1, 16) AS h
				FROM unnest(ARRAY['shop.example/orders', 'key'] || $1::text[]) WITH ORDINALITY AS p (part, n)
			) AS hash`, parts).Scan(&id))
		require.Equal(t, outbox.Namespace("shop.example/orders").Key(parts...), id)
	}
}

func TestNamespace_TellsApart(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, outbox.Namespace("n").Key("a", "b"), outbox.Namespace("n").Key("a,:b"), "without lengths")
	require.NotEqual(t, outbox.Namespace("n").Key("a", "b"), outbox.Namespace("n").Key("ab"))
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.StringMatching(`[ab0-9:,]{0,3}`), 1, 3)
		a, b := list.Draw(t, "a"), list.Draw(t, "b")
		same := slices.Equal(a, b)
		if (outbox.Namespace(a[0]).Key(a[1:]...) == outbox.Namespace(b[0]).Key(b[1:]...)) != same {
			t.Fatalf("%q and %q", a, b)
		}
	})
}

func TestNamespace_Scheduled(t *testing.T) {
	t.Parallel()
	const ns outbox.Namespace = "n"
	at := time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC)
	id := ns.Scheduled("job", at, "1")
	require.Equal(t, id, ns.Scheduled("job", at.In(time.FixedZone("", 3600)), "1"))
	for _, other := range []string{
		ns.Scheduled("bob", at, "1"), ns.Scheduled("job", at.Add(time.Second), "1"), ns.Scheduled("job", at, "2"),
		outbox.Namespace("m").Scheduled("job", at, "1"), ns.Key("job", "1769851800", "1"),
	} {
		require.NotEqual(t, id, other)
	}
}

func TestNamespace_Bucket(t *testing.T) {
	t.Parallel()
	const ns outbox.Namespace = "n"
	id := func(unix int64, width time.Duration) string {
		return ns.Bucket("user", "viewed", "page", time.Unix(unix, 0), width)
	}
	require.Equal(t, id(600, 10*time.Minute), id(1199, 10*time.Minute))
	require.NotEqual(t, id(599, 10*time.Minute), id(600, 10*time.Minute))
	require.NotEqual(t, id(1199, 10*time.Minute), id(1200, 10*time.Minute))
	require.NotEqual(t, id(600, 10*time.Minute), id(600, 5*time.Minute))
	require.Equal(t, id(-1, 10*time.Minute), id(-600, 10*time.Minute), "before 1970 too")
	require.NotEqual(t, id(-1, 10*time.Minute), id(0, 10*time.Minute))
	require.NotEqual(t, id(1, 0), id(2, 0), "a second at least")
	require.NotEqual(t, id(600, time.Minute), ns.Bucket("user", "viewed", "other", time.Unix(600, 0), time.Minute))
}
