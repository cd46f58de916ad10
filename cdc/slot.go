package cdc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"
)

// outputPlugin is the one that every server has.
const outputPlugin = "pgoutput"

// Slot is what pg_replication_slots says of a slot. Columns that the server's version lacks keep
// their zero value.
type Slot struct {
	Name   string
	Exists bool

	Logical   bool
	Plugin    string
	Database  string
	Temporary bool
	TwoPhase  bool
	Failover  bool // PostgreSQL 17 and later

	ActivePID int32 // 0: nobody streams from it

	ConfirmedFlush pglogrepl.LSN
	Restart        pglogrepl.LSN

	WALStatus          string // reserved, extended, unreserved, lost
	InvalidationReason string // PostgreSQL 16: wal_removed or conflict; later: the server's; empty while valid
	SafeWALSize        *int64 // bytes until the slot may be lost, negative when that is due; nil: no limit
	CatalogXminAge     int64  // transactions
}

// Lost says that the server will never stream from the slot again.
func (s Slot) Lost() bool { return s.InvalidationReason != "" || s.WALStatus == "lost" }

// slotColumns lists the columns of pg_replication_slots in the order in which Slot scans them.
// Versions: https://www.postgresql.org/docs/current/view-pg-replication-slots.html
func slotColumns(version int) string {
	reason, failover := "''", "false"
	switch {
	case version >= 170000:
		reason, failover = "coalesce(s.invalidation_reason, '')", "s.failover"
	case version >= 160000:
		// conflicting says no more than invalidated; only the removal of log clears restart_lsn.
		reason = `CASE WHEN s.conflicting IS NOT TRUE THEN ''
			WHEN s.restart_lsn IS NULL THEN 'wal_removed' ELSE 'conflict' END`
	}
	return `s.slot_type = 'logical', coalesce(s.plugin, ''), coalesce(s.database, ''), s.temporary, s.two_phase,
		` + failover + `, coalesce(s.active_pid, 0),
		coalesce(s.confirmed_flush_lsn, '0/0')::text, coalesce(s.restart_lsn, '0/0')::text,
		coalesce(s.wal_status, ''), ` + reason + `, s.safe_wal_size, coalesce(age(s.catalog_xmin), 0)`
}

func (s *Slot) targets() []any {
	return []any{
		&s.Logical, &s.Plugin, &s.Database, &s.Temporary, &s.TwoPhase, &s.Failover, &s.ActivePID,
		&s.ConfirmedFlush, &s.Restart, &s.WALStatus, &s.InvalidationReason, &s.SafeWALSize, &s.CatalogXminAge,
	}
}

// Slot reads the stream's slot. A missing one is no error: see Exists.
func (s *Server) Slot(ctx context.Context) (Slot, error) {
	return readSlot(ctx, s.SQL, s.Version, s.cfg.Slot)
}

func readSlot(ctx context.Context, db *pgx.Conn, version int, name string) (Slot, error) {
	slot := Slot{Name: name}
	sql := "SELECT " + slotColumns(version) + " FROM pg_replication_slots s WHERE s.slot_name = $1"
	switch err := db.QueryRow(ctx, sql, name).Scan(slot.targets()...); {
	case errors.Is(err, pgx.ErrNoRows):
		return slot, nil
	case err != nil:
		return slot, Diagnose(fmt.Errorf("read slot: %w", err))
	}
	slot.Exists = true
	return slot, nil
}

// slotHintAfter is how long the creation of a slot may take before the log says what it waits for.
const slotHintAfter = 3 * time.Second

// CreateSlot creates the stream's slot through the replication connection and returns its
// consistent point: transactions that commit after it are streamed. It waits for every transaction
// that is open now.
func (s *Server) CreateSlot(ctx context.Context) (pglogrepl.LSN, error) {
	s.Repl.Frontend().SendQuery(&pgproto3.Query{String: s.createSlotCommand()})
	if err := s.Repl.Frontend().Flush(); err != nil {
		return 0, fmt.Errorf("create slot: %w", err)
	}
	point := ""
	for {
		msg, err := s.receiveOrHint(ctx)
		if err != nil {
			return 0, fmt.Errorf("create slot: %w", err)
		}
		switch msg := msg.(type) {
		case *pgproto3.DataRow: // slot_name, consistent_point, snapshot_name, output_plugin
			if len(msg.Values) < 2 {
				return 0, fmt.Errorf("create slot: server answered with %d columns", len(msg.Values))
			}
			point = string(msg.Values[1])
			if len(msg.Values) > 2 {
				s.snapshot = string(msg.Values[2])
			}
		case *pgproto3.ErrorResponse:
			return 0, diagnoseCreation(s.cfg.Slot, pgconn.ErrorResponseToPgError(msg))
		case *pgproto3.ReadyForQuery:
			lsn, err := pglogrepl.ParseLSN(point)
			if err != nil {
				return 0, fmt.Errorf("create slot: %w", err)
			}
			return lsn, nil
		}
	}
}

// createSlotCommand writes the command out, since pglogrepl neither quotes names nor knows FAILOVER.
func (s *Server) createSlotCommand() string {
	create := "CREATE_REPLICATION_SLOT " + pgx.Identifier{s.cfg.Slot}.Sanitize()
	if s.temporary {
		create += " TEMPORARY"
	}
	create += " LOGICAL " + outputPlugin
	old, snapshot := "NOEXPORT_SNAPSHOT", "SNAPSHOT 'nothing'"
	if s.cfg.Backfill != nil && !s.temporary {
		old, snapshot = "EXPORT_SNAPSHOT", "SNAPSHOT 'export'"
	}
	switch {
	case s.Version < 150000:
		return create + " " + old
	case s.Version >= 170000 && s.cfg.Failover && !s.temporary:
		return create + " (" + snapshot + ", FAILOVER true)"
	default:
		return create + " (" + snapshot + ")"
	}
}

// receiveOrHint receives one message and logs what the server waits for whenever that takes long.
func (s *Server) receiveOrHint(ctx context.Context) (pgproto3.BackendMessage, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, slotHintAfter)
		msg, err := s.Repl.ReceiveMessage(wait)
		cancel()
		if err == nil || ctx.Err() != nil || !pgconn.Timeout(err) {
			return msg, err
		}
		s.hintOpenTransaction(ctx)
		if s.SQL.IsClosed() { // the server was asked, and did not answer
			return nil, errors.New("the connection was lost meanwhile")
		}
	}
}

// hintOpenTransaction names the oldest transaction that holds up the creation of a slot.
func (s *Server) hintOpenTransaction(ctx context.Context) {
	const oldest = `
		SELECT coalesce(pid::text, ''), coalesce(usename, ''), coalesce(state, ''), coalesce(now() - xact_start, '0')
		FROM (
			SELECT pid, usename, state, xact_start, backend_xid AS xid FROM pg_stat_activity WHERE backend_xid IS NOT NULL
			UNION ALL
			SELECT NULL, owner, 'prepared transaction ' || quote_literal(gid), prepared, transaction FROM pg_prepared_xacts
		) AS open ORDER BY age(xid) DESC LIMIT 1`
	var pid, role, state string
	var age time.Duration
	if err := s.SQL.QueryRow(ctx, oldest).Scan(&pid, &role, &state, &age); err != nil {
		s.log.Warn("creation of the slot waits for open transactions")
		return
	}
	s.log.Warn("creation of the slot waits for open transactions",
		zap.String("oldest_pid", pid), zap.String("oldest_role", role),
		zap.String("oldest_state", state), zap.Duration("oldest_age", age))
}

func diagnoseCreation(name string, err *pgconn.PgError) error {
	switch err.Code {
	case "53400": // configuration_limit_exceeded: all replication slots are in use
		return &FatalError{
			Object: quoted("slot", name), Problem: "cannot be created", Err: err,
			Remedy: "raise max_replication_slots and restart PostgreSQL, or drop a slot that nobody needs",
		}
	default:
		return Diagnose(fmt.Errorf("create slot: %w", err))
	}
}

// StartReplication starts the stream on the replication connection at the recorded position, or where
// the slot was confirmed last if that is further: a slot is written to disk by checkpoints only, so a
// server that crashed would send everything since the last one again. From then on Repl belongs to the
// session, and the slot to this stream.
func (s *Server) StartReplication(ctx context.Context, recorded pglogrepl.LSN) error {
	// publication_names is a list of identifiers inside a string: quote_literal(quote_ident(name)).
	names := quoteLiteral(pgx.Identifier{s.cfg.Publication}.Sanitize())
	args := []string{"proto_version '1'", "publication_names " + names}
	if len(s.cfg.Messages) > 0 { // otherwise logical messages are left out by the server
		args = append(args, "messages 'true'")
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ReceiveTimeout)
	defer cancel()
	err := pglogrepl.StartReplication(ctx, s.Repl, pgx.Identifier{s.cfg.Slot}.Sanitize(), recorded,
		pglogrepl.StartReplicationOptions{
			Mode:       pglogrepl.LogicalReplication,
			PluginArgs: args,
		})
	switch sqlState(err) {
	case "42704", "55000": // undefined_object, object_not_in_prerequisite_state
		// The slot was dropped or invalidated since Register looked. The next attempt states the gap.
		return fmt.Errorf("start replication: %w", err)
	}
	if err != nil {
		return Diagnose(fmt.Errorf("start replication: %w", err))
	}
	return nil
}

// quoteLiteral quotes for the grammar of replication commands, where a backslash is an ordinary
// character: src/backend/replication/repl_scanner.l.
func quoteLiteral(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// lostSlot explains an invalidated slot: what happened, and which setting to look at.
func lostSlot(slot Slot, gap, remedy string) *FatalError {
	reason, advice := slot.InvalidationReason, "raise max_slot_wal_keep_size"
	switch reason {
	case "": // before PostgreSQL 16 there is no other
		reason = "wal_removed"
	case "idle_timeout": // 18
		advice = "raise or disable idle_replication_slot_timeout"
	case "wal_level_insufficient":
		advice = "set wal_level = logical on the primary too"
	case "rows_removed", "conflict":
		advice = "keep hot_standby_feedback on and use a physical slot for the standby"
	}
	return &FatalError{
		Object:  quoted("slot", slot.Name),
		Problem: fmt.Sprintf("was invalidated by the server (%s, wal_status %q); %s", reason, slot.WALStatus, gap),
		Remedy: advice + " so that it does not happen again, drop the slot (SELECT pg_drop_replication_slot(" +
			quoteLiteral(slot.Name) + ")), " + remedy,
	}
}
