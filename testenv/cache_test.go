package testenv

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCached_FillsOnceAndWhole(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "entry")

	_, err := cached(dir, func(part string) error {
		return errors.Join(os.WriteFile(filepath.Join(part, "half"), nil, 0o600), errors.New("no network"))
	})
	require.ErrorContains(t, err, "no network")
	require.NoDirExists(t, dir)

	// What a killed process leaves behind is not taken for the whole either.
	require.NoError(t, os.Mkdir(dir+".part", 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir+".part", "half"), nil, 0o600))

	var fills atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			got, err := cached(dir, func(part string) error {
				fills.Add(1)
				return os.WriteFile(filepath.Join(part, "whole"), nil, 0o600)
			})
			if err == nil {
				_, err = os.Stat(filepath.Join(got, "whole"))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	require.EqualValues(t, 1, fills.Load())
	require.NoFileExists(t, filepath.Join(dir, "half"))
}

func TestUniqueName(t *testing.T) {
	t.Parallel()
	t.Run("Ünusual/NAME with everything and so long that it does not fit into sixty-three bytes", func(t *testing.T) {
		t.Parallel()
		one, two := uniqueName(t), uniqueName(t)
		require.NotEqual(t, one, two)
		require.Regexp(t, "^[a-z][a-z0-9_]{0,62}$", one)
	})
}

func TestReservePort_IsNobodyElses(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 20 {
		port, err := reservePort()
		require.NoError(t, err)
		require.False(t, seen[port])
		seen[port] = true
	}
}
