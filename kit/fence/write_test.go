package fence_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/walrelay/walrelay/kit/fence"
	"github.com/walrelay/walrelay/testenv"
)

// Names that need quoting are quoted, columns are found by several keys.
func TestWrite_Names(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	db.Exec(t, `CREATE SCHEMA "Odd;"; CREATE TABLE "Odd;"."a""b" ("User" text, "select" int, "x' y" text, "Fence!" bigint);
		INSERT INTO "Odd;"."a""b" VALUES ('u', 1, 'old', NULL), ('u', 2, 'old', NULL)`)
	write := fence.Write{
		Table: pgx.Identifier{"Odd;", `a"b`}, Key: map[string]any{"User": "u", "select": 1},
		Set: map[string]any{"x' y": "new"}, Fence: "Fence!",
	}
	require.NoError(t, write.Do(t.Context(), db.Conn, fence.Once, 5))
	var got []string
	require.NoError(t, db.QueryRow(t, `SELECT array_agg("x' y" || coalesce("Fence!", 0) ORDER BY "select")
		FROM "Odd;"."a""b"`).Scan(&got))
	require.Equal(t, []string{"new5", "old0"}, got)
	write.Key["select"] = 3
	require.ErrorIs(t, write.Do(t.Context(), db.Conn, fence.Once, 6), fence.ErrNoRow)
	write.Key = nil
	require.ErrorIs(t, write.Do(t.Context(), db.Conn, fence.Once, 6), fence.ErrWrite)
	write.Key = map[string]any{"select": 1}
	require.ErrorIs(t, write.Do(t.Context(), db.Conn, fence.Once, 0), fence.ErrToken)
	require.Equal(t, `("f" IS NULL OR "f" < $2)`, fence.Once.Condition(pgx.Identifier{"f"}, 2))
	require.Equal(t, `("t"."f" IS NULL OR "t"."f" <= $2)`, fence.Repeatable.Condition(pgx.Identifier{"t", "f"}, 2))
}

// Writers with different tokens at the same moment: each token passes once at most, and the last word is
// that of the largest.
func TestWrite_Concurrently(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	db.Exec(t, `CREATE TABLE r (id int, by_token bigint, writes bigint[] DEFAULT '{}', fence bigint);
		INSERT INTO r (id) VALUES (1);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN NEW.writes := OLD.writes || NEW.fence; RETURN NEW; END';
		CREATE TRIGGER note BEFORE UPDATE ON r FOR EACH ROW EXECUTE FUNCTION note()`)
	var group errgroup.Group
	for i := range 40 {
		token := fence.Token(i/2 + 1) // each one twice
		group.Go(func() error {
			err := fence.Write{
				Table: pgx.Identifier{"r"}, Key: map[string]any{"id": 1}, Set: map[string]any{"by_token": int64(token)},
			}.Do(t.Context(), db.Conn, fence.Once, token)
			if fence.StatusCode(err) == http.StatusInternalServerError {
				return err
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	var by int64
	var writes []int64
	require.NoError(t, db.QueryRow(t, "SELECT by_token, writes FROM r").Scan(&by, &writes))
	require.EqualValues(t, 20, by)
	require.IsIncreasing(t, append([]int64{0}, writes...))
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	admit := func(form fence.Form, token fence.Token) error {
		return fence.Admit(t.Context(), db.Conn, "disk", form, token)
	}
	checkGate(t, admit)
	tx, err := db.Conn.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, fence.Admit(t.Context(), tx, "disk", fence.Once, 100))
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, admit(fence.Once, 50), "an effect that was rolled back has no mark")
	require.ErrorIs(t, fence.Admit(t.Context(), db.Conn, "", fence.Once, 1), fence.ErrResource)
}

func TestGate(t *testing.T) {
	t.Parallel()
	var gate fence.Gate
	checkGate(t, func(form fence.Form, token fence.Token) error { return gate.Do("disk", form, token, nil) })
	require.ErrorIs(t, gate.Do("disk", fence.Once, 1, func() error { panic("reached") }), fence.ErrFenced)
	gate.Raise("disk", 30)
	gate.Raise("disk", 20)
	require.ErrorIs(t, gate.Do("disk", fence.Repeatable, 29, nil), fence.ErrFenced)
	gate.Forget("disk")
	require.ErrorIs(t, gate.Do("disk", fence.Once, 1, func() error { return http.ErrAbortHandler }), http.ErrAbortHandler)
}

func checkGate(t *testing.T, admit func(fence.Form, fence.Token) error) {
	t.Helper()
	require.NoError(t, admit(fence.Once, 5))
	require.ErrorIs(t, admit(fence.Once, 5), fence.ErrRepeated)
	require.NoError(t, admit(fence.Repeatable, 5))
	require.ErrorIs(t, admit(fence.Once, 4), fence.ErrFenced)
	require.ErrorIs(t, admit(fence.Repeatable, 4), fence.ErrFenced)
	require.NoError(t, admit(fence.Repeatable, 6))
	require.ErrorIs(t, admit(fence.Once, 0), fence.ErrToken)
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	var gate fence.Gate
	server := httptest.NewServer(fence.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(fence.StatusCode(gate.Do(r.URL.Path, fence.Once, fence.FromContext(r.Context()), nil)))
	})))
	defer server.Close()
	client := &http.Client{Transport: fence.Transport{Base: server.Client().Transport}}
	put := func(token fence.Token) int {
		ctx := fence.NewContext(t.Context(), token)
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL+"/a", http.NoBody)
		require.NoError(t, err)
		answer, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Empty(t, r.Header, "a RoundTripper must not change its request")
		return answer.StatusCode
	}
	require.Equal(t, []int{200, 409, 412, 400, 200}, []int{put(5), put(5), put(4), put(0), put(6)})

	for _, values := range [][]string{{"x"}, {fence.Token(5).String(), fence.Token(6).String()}} {
		_, err := fence.FromHTTP(http.Header{fence.Header: values})
		require.ErrorIs(t, err, fence.ErrToken)
	}
	name, value := fence.ToKafka(77)
	token, err := fence.FromKafka(func(n string) ([]byte, bool) { return value, n == name })
	require.NoError(t, err)
	require.EqualValues(t, 77, token)
	_, err = fence.FromKafka(func(string) ([]byte, bool) { return nil, false })
	require.ErrorIs(t, err, fence.ErrNoToken)
}
