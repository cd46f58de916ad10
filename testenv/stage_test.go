package testenv_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestStage_CleansUpAfterFailure(t *testing.T) {
	var log bytes.Buffer
	var done []string
	ok := testenv.PerformAlone(t.Context(), &log, func(t testing.TB) {
		t.Cleanup(func() { done = append(done, "first") })
		t.Cleanup(func() {
			done = append(done, "second")
			t.Fatalf("while cleaning up")
		})
		t.Fatalf("broken: %d", 7)
		done = append(done, "never")
	})
	require.False(t, ok)
	require.Equal(t, []string{"second", "first"}, done)
	require.Equal(t, "broken: 7\nwhile cleaning up\n", log.String())
	require.True(t, testenv.PerformAlone(t.Context(), &log, func(testing.TB) {}))
}
