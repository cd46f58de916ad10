package cdc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

// SlotKeeper does to the stream's slot what an operator asks for. It has a connection for queries and needs
// no WAL sender. It is not safe for concurrent use.
type SlotKeeper struct {
	server *Server // without a replication connection
}

// OpenSlotKeeper connects. Of the configuration it needs ConnString, ConnectTimeout, Stream and Slot; and
// Publication, Mappings and Messages for what a Gap holds.
func OpenSlotKeeper(ctx context.Context, cfg *Config) (*SlotKeeper, error) {
	db, err := connectSQL(ctx, cfg)
	if err != nil {
		return nil, err
	}
	k := &SlotKeeper{server: &Server{SQL: db, cfg: cfg, log: cfg.Logger}}
	err = db.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&k.server.Version)
	if err != nil {
		k.Close(ctx)
		return nil, Diagnose(fmt.Errorf("read version: %w", err))
	}
	return k, nil
}

// Close closes the connection.
func (k *SlotKeeper) Close(ctx context.Context) { k.server.Close(ctx) }

// Registry returns the stream's registry on the same connection.
func (k *SlotKeeper) Registry() *Registry { return k.server.Registry() }

// SlotReport is everything that the server says of a slot.
type SlotReport struct {
	Slot

	Current    pglogrepl.LSN // the server's write position
	ServerTime time.Time
	Synced     bool      // copied from the primary; PostgreSQL 17 and later
	Inactive   time.Time // since when nobody reads it; PostgreSQL 17 and later, zero: unknown, or somebody does
	Holder     *Holder   // nil: nobody reads it
	KeepSize   string    // max_slot_wal_keep_size
}

// Holder is the session that reads a slot.
type Holder struct {
	PID                 int32
	Application, Client string // as the server knows them
	Since               time.Time
}

// String names the session in messages.
func (h *Holder) String() string {
	return fmt.Sprintf("server process %d (%s from %s, since %s)", h.PID, h.Application, h.Client,
		h.Since.UTC().Format(time.RFC3339))
}

// ConfirmedBytes is the log after the confirmed position.
func (r *SlotReport) ConfirmedBytes() int64 { return max(0, int64(r.Current)-int64(r.ConfirmedFlush)) }

// RetainedBytes is the log that the server keeps for the slot. A lost one keeps nothing.
func (r *SlotReport) RetainedBytes() int64 {
	if r.Restart == 0 {
		return 0
	}
	return int64(r.Current) - int64(r.Restart)
}

// Report reads the slot. A missing one is no error: see Exists.
func (k *SlotKeeper) Report(ctx context.Context) (*SlotReport, error) {
	s := k.server
	slot, err := s.Slot(ctx)
	if err != nil {
		return nil, err
	}
	r := &SlotReport{Slot: slot}
	inactive, synced := "NULL::timestamptz", "false"
	if s.Version >= 170000 {
		inactive, synced = "s.inactive_since", "s.synced"
	}
	var since, holding *time.Time
	var holder Holder
	err = s.SQL.QueryRow(ctx, `
		SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END)::text,
			clock_timestamp(), current_setting('max_slot_wal_keep_size'), coalesce(`+synced+`, false), `+inactive+`,
			coalesce(a.application_name, ''), coalesce(host(a.client_addr), 'a local socket'), a.backend_start
		FROM (SELECT 1) AS one
		LEFT JOIN pg_replication_slots s ON s.slot_name = $1
		LEFT JOIN pg_stat_replication a ON a.pid = s.active_pid`, slot.Name).
		Scan(&r.Current, &r.ServerTime, &r.KeepSize, &r.Synced, &since, &holder.Application, &holder.Client, &holding)
	if err != nil {
		return nil, Diagnose(fmt.Errorf("read slot: %w", err))
	}
	if since != nil && slot.ActivePID == 0 {
		r.Inactive = *since
	}
	if slot.ActivePID != 0 {
		r.Holder = &holder
		holder.PID = slot.ActivePID
		if holding != nil {
			holder.Since = *holding
		}
	}
	return r, nil
}

// Free returns the slot, provided that it can carry a stream and nobody reads it.
func (k *SlotKeeper) Free(ctx context.Context) (*SlotReport, error) {
	r, err := k.Report(ctx)
	if err != nil {
		return nil, err
	}
	refuse := func(problem, remedy string) (*SlotReport, error) {
		return nil, &FatalError{Object: quoted("slot", r.Name), Problem: problem, Remedy: remedy}
	}
	var database string
	if err := k.server.SQL.QueryRow(ctx, "SELECT current_database()::text").Scan(&database); err != nil {
		return nil, Diagnose(fmt.Errorf("read database: %w", err))
	}
	switch {
	case !r.Exists:
		return refuse("does not exist", "check WALRELAY_SLOT; `walrelay slot create` makes it")
	case !r.Logical || r.Plugin != outputPlugin:
		return refuse("is none of walrelay's: it is physical or has another plugin", "check WALRELAY_SLOT")
	case r.Database != database:
		return refuse(fmt.Sprintf("belongs to database %q", r.Database), "connect to that database")
	case r.Holder != nil:
		return refuse("is in use by "+r.Holder.String(),
			"stop every instance, or `walrelay stream pause "+k.server.cfg.Stream+"`")
	}
	return r, nil
}

// Drop drops the slot, as Report has it. What it has not streamed is lost to the stream, whose next start says so and
// refuses until `walrelay slot create`.
func (k *SlotKeeper) Drop(ctx context.Context, slot *SlotReport) error {
	_, undo, err := k.leaveOut(ctx, dropped, slot.Current)
	if err != nil {
		return err
	}
	_, err = k.server.SQL.Exec(ctx, "SELECT pg_drop_replication_slot($1)", k.server.cfg.Slot)
	if err != nil {
		undo(ctx)
	}
	return k.inUse("drop slot", err)
}

// leaveOut records what will not be streamed, unless that is nothing, or nothing is recorded of the slot: then row
// is nil, and whoever starts next takes the slot as it is found.
func (k *SlotKeeper) leaveOut(
	ctx context.Context, how LeftOutHow, to pglogrepl.LSN,
) (row *registryRow, undo func(context.Context), err error) {
	undo = func(context.Context) {}
	row, err = k.Registry().load(ctx)
	switch {
	case err != nil || row == nil || row.Created == 0:
		return nil, undo, err
	case how == dropped || to > row.Confirmed:
		undo, err = k.Registry().leaveOut(ctx, how, row.Confirmed, to)
	}
	return row, undo, err
}

// Advance moves the slot to an LSN, or to the end of the last transaction before it, and returns where it
// stands then. The next start goes on there, says once what was left out, and how it is published.
func (k *SlotKeeper) Advance(ctx context.Context, to pglogrepl.LSN) (reached pglogrepl.LSN, err error) {
	s := k.server
	row, undo, err := k.leaveOut(ctx, advanced, to)
	if err != nil {
		return 0, err
	}
	err = s.SQL.QueryRow(ctx, "SELECT end_lsn::text FROM pg_replication_slot_advance($1, $2::text::pg_lsn)",
		s.cfg.Slot, to.String()).Scan(&reached)
	if err != nil {
		undo(ctx)
		return 0, k.inUse("advance slot", err)
	}
	if row == nil {
		return reached, nil
	}
	return reached, s.Registry().Confirm(ctx, reached, row.Timeline, time.Time{})
}

// inUse says who came first when a slot that was free is not any more.
func (k *SlotKeeper) inUse(verb string, err error) error {
	if err == nil {
		return nil
	}
	err = Diagnose(fmt.Errorf("%s: %w", verb, err))
	if active, ok := errors.AsType[*SlotActiveError](err); ok {
		return &FatalError{
			Object: quoted("slot", k.server.cfg.Slot), Problem: fmt.Sprintf("is in use by server process %d", active.PID),
			Remedy: "stop every instance first",
		}
	}
	return err
}
