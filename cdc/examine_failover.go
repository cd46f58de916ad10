package cdc

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

func (e *examination) failoverChecks() []check {
	object := quoted("slot", e.cfg.Slot)
	return []check{
		{"synchronous-standby-names", serverObject, e.synchronousNames},
		{"slot-failover", object, e.slotFailover},
		{"synchronized-standby-slots", serverObject, e.synchronizedSlots},
	}
}

// synchronousNames: any walsender that streams counts as a standby, one of logical replication too.
func (e *examination) synchronousNames(ctx context.Context) error {
	const id = "synchronous-standby-names"
	setting, err := e.setting(ctx, id2setting(id))
	if err != nil {
		return err
	}
	found := fmt.Sprintf("synchronous_standby_names = %q", setting)
	if !namesStandby(setting, e.application) {
		e.add(ok(id, serverObject, found+" does not count walrelay's connection"))
		return nil
	}
	f := Finding{
		Check: id, Object: serverObject, Level: LevelFault,
		Found: found + fmt.Sprintf(" counts walrelay's connection (application_name %q) as a standby", e.application),
		Why:   "commits wait for this stream, or hold to be safe on a standby what only walrelay has",
		Fix:   "add application_name=walrelay_relay to WALRELAY_DATABASE_URL",
	}
	if !namesStandby(setting, "walrelay_relay") { // not *
		e.add(f)
		return nil
	}
	standbys, err := e.standbyNames(ctx)
	if err != nil {
		return err
	}
	value := ""
	if len(standbys) > 0 {
		value = "FIRST 1 (" + strings.Join(standbys, ", ") + ")"
	}
	f.Fix = e.provider.reload(id2setting(id), value)
	e.add(f)
	return nil
}

// standbyNames lists the physical standbys, quoted for synchronous_standby_names.
func (e *examination) standbyNames(ctx context.Context) ([]string, error) {
	rows, err := e.server.SQL.Query(ctx, `
		SELECT DISTINCT '"' || replace(r.application_name, '"', '""') || '"' FROM pg_stat_replication r
		WHERE r.application_name <> '' AND NOT EXISTS (
			SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')
		ORDER BY 1`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func id2setting(id string) string { return strings.ReplaceAll(id, "-", "_") }

// slotFailover asks whether a promotion would take the slot along.
func (e *examination) slotFailover(ctx context.Context) error {
	const id = "slot-failover"
	object := quoted("slot", e.cfg.Slot)
	var standbys int
	err := e.server.SQL.QueryRow(ctx, `
		SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical' AND active`).Scan(&standbys)
	if err != nil {
		return err
	}
	alter := fmt.Sprintf("psql \"... replication=database\" -c 'ALTER_REPLICATION_SLOT %s (FAILOVER true)', with every "+
		"instance stopped", pgx.Identifier{e.cfg.Slot}.Sanitize())
	f := Finding{Check: id, Object: object, Level: LevelWarning}
	switch {
	case e.cfg.Failover && e.server.Version < 170000:
		f.Found = "WALRELAY_SLOT_FAILOVER is set, and PostgreSQL copies slots from version 17 on"
		f.Why = "the slot is gone after a promotion, and the rows in between must be published again"
		f.Fix = "upgrade to PostgreSQL 17 or later, or let Patroni keep the slot (slots: in its configuration)"
	case e.cfg.Failover && e.slot.Exists && !e.slot.Failover:
		f.Found = "WALRELAY_SLOT_FAILOVER is set, and the slot was made without"
		f.Why = "it is not copied to standbys, and gone after a promotion"
		f.Fix = alter
	case standbys > 0 && !e.slot.Failover && !e.cfg.Failover:
		f.Found = fmt.Sprintf("the server has %d standbys, and the slot is not copied to them", standbys)
		f.Why = "it is gone after a promotion, and the rows in between must be published again"
		f.Fix = "set WALRELAY_SLOT_FAILOVER=true"
		if e.slot.Exists {
			f.Fix += "; and " + alter
		}
		if e.server.Version < 170000 {
			f.Fix = "upgrade to PostgreSQL 17 or later, or let Patroni keep the slot (slots: in its configuration)"
		}
	case e.slot.Failover || e.cfg.Failover:
		e.add(ok(id, object, "is copied to standbys that set sync_replication_slots = on"))
		return e.standbyFeedback(ctx)
	default:
		e.add(ok(id, object, "no standby streams through a slot of its own"))
		return nil
	}
	e.add(f)
	return nil
}

// standbyFeedback: a standby that reports no xmin has hot_standby_feedback off.
func (e *examination) standbyFeedback(ctx context.Context) error {
	rows, err := e.server.SQL.Query(ctx, `
		SELECT slot_name::text FROM pg_replication_slots
		WHERE slot_type = 'physical' AND active AND xmin IS NULL AND catalog_xmin IS NULL ORDER BY 1`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) == 0 {
		return err
	}
	e.add(Finding{
		Check: "hot-standby-feedback", Object: "slot " + joined(names), Level: LevelWarning,
		Found: "the standby that uses it sends no feedback",
		Why:   "it does not copy slots without: sync_replication_slots needs hot_standby_feedback",
		Fix:   "on the standby: ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf()",
	})
	return nil
}

// synchronizedSlots looks at the setting that keeps a stream behind the standbys.
func (e *examination) synchronizedSlots(ctx context.Context) error {
	const id = "synchronized-standby-slots"
	if e.server.Version < 170000 || !e.slot.Failover && !e.cfg.Failover { // new in 17, for failover slots only
		return nil
	}
	setting, err := e.setting(ctx, id2setting(id))
	if err != nil {
		return err
	}
	rows, err := e.server.SQL.Query(ctx,
		"SELECT slot_name::text FROM pg_replication_slots WHERE slot_type = 'physical' AND active ORDER BY 1")
	if err != nil {
		return err
	}
	active, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if f := judgeSynchronized(setting, active, e.provider); f.Check != "" {
		e.add(f)
	}
	return nil
}

// judgeSynchronized is about synchronized_standby_slots, given the physical slots that standbys use.
func judgeSynchronized(setting string, active []string, p provider) Finding {
	const id = "synchronized-standby-slots"
	named := strings.FieldsFunc(setting, func(r rune) bool { return strings.ContainsRune(`, "`, r) })
	absent := slices.DeleteFunc(slices.Clone(named), func(name string) bool { return slices.Contains(active, name) })
	f := ok(id, serverObject, fmt.Sprintf("synchronized_standby_slots = %q", setting))
	switch {
	case len(absent) > 0:
		present := slices.DeleteFunc(named, func(name string) bool { return slices.Contains(absent, name) })
		f.Level = LevelFault
		f.Found += "; no standby streams through " + joined(absent)
		f.Why = "the stream waits for every standby named there, and stands still until it comes back"
		f.Fix = p.reload(id2setting(id), strings.Join(present, ", "))
	case len(named) == 0 && len(active) > 0:
		f.Level = LevelWarning
		f.Why = "events may be published that a standby does not have yet: when it is promoted, consumers know rows that " +
			"the database lost. With the setting the stream waits for the standbys instead"
		f.Fix = p.reload(id2setting(id), strings.Join(active, ", "))
	case len(named) == 0:
		return Finding{}
	}
	return f
}
