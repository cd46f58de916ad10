package testenv

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dropSharedMemory removes what killed postmasters leave to the machine: each has one System V segment of a page,
// which shows the next one whether processes of the last are alive. Linux has room for 4096 of them; without it no
// PostgreSQL starts any more. Line 7 of postmaster.pid is key and id (LOCK_FILE_LINE_SHMEM_KEY in miscadmin.h). One
// that a process is attached to stays.
func dropSharedMemory(dataDirs ...string) {
	for _, dir := range dataDirs {
		text, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
		if err != nil {
			continue // it has removed the file and the segment itself
		}
		lines := strings.Split(string(text), "\n")
		if len(lines) < 7 {
			continue
		}
		fields := strings.Fields(lines[6])
		if len(fields) != 2 {
			continue
		}
		id, err := strconv.Atoi(fields[1])
		if err != nil {
			continue
		}
		var segment unix.SysvShmDesc
		if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &segment); err == nil && segment.Nattch == 0 {
			_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) // gone meanwhile, or another user's
		}
	}
}
