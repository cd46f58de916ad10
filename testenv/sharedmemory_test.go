package testenv_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/walrelay/walrelay/testenv"
)

// A machine has room for 4096 segments of shared memory: a server that is killed must not leave its own.
func TestPostgres_LeavesNoSharedMemory(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		for name, end := range map[string]func(*testing.T, *testenv.Server){
			"runs":    func(*testing.T, *testenv.Server) {},
			"killed":  func(t *testing.T, pg *testenv.Server) { pg.Kill(t) },
			"paused":  func(t *testing.T, pg *testenv.Server) { pg.Pause(t) },
			"stopped": func(t *testing.T, pg *testenv.Server) { pg.Stop(t, testenv.Fast) },
		} {
			var id int
			t.Run(name, func(t *testing.T) {
				pg := testenv.StartPostgres(t, major, testenv.Config{})
				id = sharedMemory(t, pg.Dir)
				end(t, pg)
			})
			require.False(t, exists(id), name)
		}
	})
}

// sharedMemory is the id of a server's segment, which exists.
func sharedMemory(t *testing.T, dataDir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dataDir, "postmaster.pid"))
	require.NoError(t, err)
	fields := strings.Fields(strings.Split(string(text), "\n")[6])
	require.Len(t, fields, 2)
	id, err := strconv.Atoi(fields[1])
	require.NoError(t, err)
	require.True(t, exists(id))
	return id
}

func exists(id int) bool {
	var segment unix.SysvShmDesc
	_, err := unix.SysvShmCtl(id, unix.IPC_STAT, &segment)
	return err == nil
}
