package testenv

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Standby starts a hot standby that streams from s through a physical slot of its own. The defaults
// of its settings are those of s, and such that logical slots can be synchronised to it (17 and
// later) when cfg also sets sync_replication_slots.
func (s *Server) Standby(t testing.TB, cfg Config) *Server {
	t.Helper()
	slot := uniqueName(t)
	standby, err := s.newStandby(slot, cfg)
	if err != nil {
		t.Fatalf("start standby of PostgreSQL %d: %v", s.Major, err)
	}
	standby.private = true
	t.Cleanup(func() {
		standby.cleanup(t)
		if s.private { // which goes as a whole, if it is still there
			return
		}
		if err := s.dropPhysicalSlot(slot); err != nil {
			t.Errorf("drop slot %s: %v", slot, err)
		}
	})
	return standby
}

// dropPhysicalSlot tries until the WAL sender has noticed that the standby is gone.
func (s *Server) dropPhysicalSlot(slot string) error {
	var last error
	poll(time.Minute, func() bool {
		last = s.admin(func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SELECT pg_drop_replication_slot($1)", slot)
			return err
		})
		return last == nil
	})
	return last
}

// Promote makes a standby a primary, on a timeline of its own, and waits for that.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	s.Exec(t, "SELECT pg_promote()")
}

func (s *Server) newStandby(slot string, cfg Config) (*Server, error) {
	standby, err := layPostgres(s.Major, s.programs)
	if err != nil {
		return nil, err
	}
	err = s.admin(func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "SELECT pg_create_physical_replication_slot($1, true)", slot); err != nil {
			return err
		}
		label, err := s.backup(ctx, conn, standby.Dir)
		if err != nil {
			return err
		}
		return errors.Join(standby.write("backup_label", []byte(label)), standby.write("standby.signal", nil))
	})
	if err != nil {
		return nil, fmt.Errorf("copy primary: %w", err)
	}
	err = standby.configure(map[string]string{
		"primary_conninfo":     s.SocketDSN("postgres") + " application_name=" + slot,
		"primary_slot_name":    slot,
		"hot_standby_feedback": "on",
	}, cfg)
	if err != nil {
		return nil, err
	}
	return standby, standby.start()
}

// backup copies the running server's data directory and returns its backup label: "Making a
// Non-Exclusive Low-Level Backup" in PostgreSQL's manual. The write-ahead log is left out, for the
// standby gets it through the slot.
func (s *Server) backup(ctx context.Context, conn *pgx.Conn, to string) (label string, err error) {
	begin, end := "SELECT pg_backup_start('standby', true)", "SELECT labelfile FROM pg_backup_stop(false)"
	if s.Major < 15 {
		begin = "SELECT pg_start_backup('standby', true, false)"
		end = "SELECT labelfile FROM pg_stop_backup(false, false)"
	}
	if _, err := conn.Exec(ctx, begin); err != nil {
		return "", err
	}
	err = copyTree(s.Dir, to, func(rel string) bool {
		switch filepath.Dir(rel) {
		case "pg_wal":
			return rel != "pg_wal/archive_status" && rel != "pg_wal/summaries"
		case ".":
			return strings.HasPrefix(rel, "postmaster.")
		}
		top, _, _ := strings.Cut(rel, "/")
		return top == "pg_replslot" || top == "pg_dynshmem" || top == "pg_wal"
	})
	if err != nil {
		return "", err
	}
	return label, conn.QueryRow(ctx, end).Scan(&label)
}
