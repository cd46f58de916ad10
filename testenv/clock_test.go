package testenv_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestStayWithin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now() // midnight, UTC
		testenv.StayWithin(t, time.Hour, time.Minute)
		require.Zero(t, time.Since(began))
		time.Sleep(59*time.Minute + 30*time.Second) // of the bubble
		testenv.StayWithin(t, time.Hour, time.Second)
		require.Equal(t, 59*time.Minute+30*time.Second, time.Since(began))
		testenv.StayWithin(t, time.Hour, time.Minute)
		require.Equal(t, time.Hour, time.Since(began))
	})
}
