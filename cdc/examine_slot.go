package cdc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

func (e *examination) slotChecks() []check {
	object := quoted("slot", e.cfg.Slot)
	return []check{
		{"slot", object, e.slotState},
		{"slot-retention", object, e.retention},
		{"slot-wal-limit", serverObject, e.walLimit},
		{"slot-idle-timeout", serverObject, e.idleTimeout},
	}
}

// slotState decides as a start would.
func (e *examination) slotState(ctx context.Context) error {
	f := facts{server: &e.server, timelines: e.server.timelines, database: e.database, row: e.row}
	var err error
	// An instance that streams records a position before it confirms it: the slot is read first.
	if f.slot, err = e.server.Slot(ctx); err != nil {
		return err
	}
	e.slot = f.slot
	if _, err := e.recorded(ctx); err != nil {
		return err
	}
	f.row = e.row
	if f.row != nil && !e.identified {
		return errors.New("the replication connection did not say which server this is")
	}
	err = e.server.SQL.QueryRow(ctx, `SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
		ELSE pg_current_wal_lsn() END)::text`).Scan(&f.now)
	if err != nil {
		return err
	}
	object := quoted("slot", f.slot.Name)
	act, err := f.decide()
	if fatal, is := errors.AsType[*FatalError](err); is {
		e.add(Finding{
			Check: "slot", Object: fatal.Object, Level: LevelFault, Found: fatal.Problem,
			Why: "the stream does not start, or has ended", Fix: fatal.Remedy,
		})
		return nil
	}
	switch {
	case err != nil, act != actionCreate && f.slot.ActivePID != 0: // an error is an instance that creates it
		e.add(ok("slot", object, fmt.Sprintf("in use by server process %d", f.slot.ActivePID)))
	case act == actionCreate:
		e.add(ok("slot", object, "does not exist yet; the first start creates it"))
	case act == actionAdopt:
		e.add(Finding{
			Check: "slot", Object: object, Level: LevelWarning, Found: "was there before the stream",
			Why: fmt.Sprintf("the stream begins at %s, where somebody else left the slot", f.slot.ConfirmedFlush),
			Fix: "if that is not meant: SELECT pg_drop_replication_slot(" + quoteLiteral(f.slot.Name) + ")",
		})
	case e.paused != nil:
		e.add(ok("slot", object, "nobody streams from it: the stream is paused"))
	default:
		e.add(Finding{
			Check: "slot", Object: object, Level: LevelWarning, Found: "nobody streams from it",
			Why: "the server keeps the write-ahead log from " + f.slot.Restart.String() + " on until somebody does",
			Fix: "walrelay run",
		})
	}
	return nil
}

// Values of pg_replication_slots.wal_status of a slot that is not lost.
const (
	walExtended   = "extended"   // beyond max_wal_size
	walUnreserved = "unreserved" // the next checkpoint may remove what the slot needs
)

func (e *examination) retention(ctx context.Context) error {
	if !e.slot.Exists || e.slot.Lost() {
		return nil
	}
	var retained int64
	var limit string
	err := e.server.SQL.QueryRow(ctx, `
		SELECT coalesce(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
			ELSE pg_current_wal_lsn() END, $1::text::pg_lsn), 0)::bigint, current_setting('max_slot_wal_keep_size')`,
		e.slot.Restart.String()).Scan(&retained, &limit)
	if err != nil {
		return err
	}
	e.add(judgeRetention(e.slot, retained, limit, e.provider))
	return nil
}

// nearLimit is the share of the limit from which a slot's log is worth a warning: four fifths.
const nearLimit = 4

// judgeRetention is about a slot for which the server keeps this many bytes of log, under this limit.
func judgeRetention(slot Slot, retained int64, limit string, p provider) Finding {
	f := ok("slot-retention", quoted("slot", slot.Name),
		fmt.Sprintf("keeps %s of write-ahead log (wal_status %s)", bytesText(retained), slot.WALStatus))
	near := slot.SafeWALSize != nil && *slot.SafeWALSize < retained/nearLimit
	switch {
	case slot.WALStatus == walUnreserved, slot.SafeWALSize != nil && *slot.SafeWALSize <= 0:
		f.Level, f.Why = LevelFault, "the next checkpoint may remove log that was not streamed: the slot is then lost"
	case near:
		f.Level = LevelWarning
		f.Why = fmt.Sprintf("after %s more it may be lost (max_slot_wal_keep_size = %s)", bytesText(*slot.SafeWALSize), limit)
	case slot.WALStatus == walExtended:
		f.Level, f.Why = LevelWarning, "it is more than max_wal_size: the stream is behind, or an old transaction is open"
	default:
		return f
	}
	f.Fix = "let the stream catch up (walrelay run; open-transactions below)"
	if slot.SafeWALSize != nil {
		f.Fix = p.reload("max_slot_wal_keep_size", bytesText(max(4*retained, 1<<30))) + "; then let the stream catch up"
	}
	return f
}

// bytesText writes a size in PostgreSQL's own units.
func bytesText(n int64) string {
	switch {
	case n >= 10<<30:
		return strconv.FormatInt(n>>30, 10) + "GB"
	case n >= 10<<20:
		return strconv.FormatInt(n>>20, 10) + "MB"
	default:
		return strconv.FormatInt(n>>10, 10) + "kB"
	}
}

func (e *examination) walLimit(ctx context.Context) error {
	limit, err := e.setting(ctx, "max_slot_wal_keep_size")
	if err != nil {
		return err
	}
	if limit != "-1" {
		e.add(ok("slot-wal-limit", serverObject, "max_slot_wal_keep_size = "+limit+"; beyond it the slot is lost"))
		return nil
	}
	e.add(Finding{
		Check: "slot-wal-limit", Object: serverObject, Level: LevelWarning,
		Found: "max_slot_wal_keep_size = -1 (unlimited)",
		Why: "a relay that stays away fills the database's disk and stops every writer; with a limit it loses its slot " +
			"instead, and rows must be published again. Set it below the free space of the disk, above what an outage writes",
		Fix: e.provider.reload("max_slot_wal_keep_size", "50GB"),
	})
	return nil
}

func (e *examination) idleTimeout(ctx context.Context) error {
	if e.server.Version < 180000 { // new in 18
		return nil
	}
	timeout, err := e.setting(ctx, "idle_replication_slot_timeout")
	if err != nil {
		return err
	}
	if timeout == "0" {
		e.add(ok("slot-idle-timeout", serverObject, "idle_replication_slot_timeout = 0"))
		return nil
	}
	e.add(Finding{
		Check: "slot-idle-timeout", Object: serverObject, Level: LevelWarning,
		Found: "idle_replication_slot_timeout = " + timeout,
		Why:   "the slot is lost when no instance streams for that long, however little log it keeps",
		Fix:   e.provider.reload("idle_replication_slot_timeout", "0"),
	})
	return nil
}
