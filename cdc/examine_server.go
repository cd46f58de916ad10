package cdc

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

func (e *examination) serverChecks() []check {
	return []check{
		{"provider", serverObject, e.findProvider},
		{"version", serverObject, e.version},
		{"wal-level", serverObject, e.walLevel},
		{"replication-slots", serverObject, e.slotsLeft},
		{"wal-senders", serverObject, e.sendersLeft},
		{"wal-sender-timeout", serverObject, e.walSenderTimeout},
		{"encoding", "database", e.encoding},
	}
}

func (e *examination) version(context.Context) error {
	major, minor := e.server.Version/10000, e.server.Version%10000
	if e.server.Version < minVersion {
		e.add(Finding{
			Check: "version", Object: serverObject, Level: LevelFault,
			Found: fmt.Sprintf("PostgreSQL %d.%d", major, minor),
			Why:   "14 is the oldest that walrelay supports",
			Fix:   "upgrade PostgreSQL to 14 or later, with pg_upgrade",
		})
		return nil
	}
	e.add(ok("version", serverObject, fmt.Sprintf("PostgreSQL %d.%d", major, minor)))
	for _, bug := range knownBugs(e.server.Version) {
		e.add(Finding{
			Check: "minor-version", Object: serverObject, Level: LevelWarning, Found: bug,
			Why: "rows may be lost or repeated, or the stream may stop",
			Fix: fmt.Sprintf("install the newest release of PostgreSQL %d and restart the server", major),
		})
	}
	return nil
}

func (e *examination) walLevel(ctx context.Context) error {
	level, err := e.setting(ctx, "wal_level")
	if err != nil {
		return err
	}
	if level == "logical" {
		e.add(ok("wal-level", serverObject, "wal_level = logical"))
		return nil
	}
	e.add(Finding{
		Check: "wal-level", Object: serverObject, Level: LevelFault, Found: "wal_level = " + level,
		Why: "the log lacks what logical decoding needs", Fix: e.provider.restart("wal_level", "logical"),
	})
	return nil
}

func (e *examination) slotsLeft(ctx context.Context) error {
	var used, limit int
	var ours bool
	err := e.server.SQL.QueryRow(ctx, `
		SELECT count(*), current_setting('max_replication_slots')::int, count(*) FILTER (WHERE slot_name = $1) > 0
		FROM pg_replication_slots`, e.cfg.Slot).Scan(&used, &limit, &ours)
	if err != nil {
		return err
	}
	found := fmt.Sprintf("%d of %d (max_replication_slots) in use", used, limit)
	if used < limit || ours {
		e.add(ok("replication-slots", serverObject, found))
		return nil
	}
	e.add(Finding{
		Check: "replication-slots", Object: serverObject, Level: LevelFault, Found: found,
		Why: "the stream's slot cannot be created", Fix: e.provider.restart("max_replication_slots", strconv.Itoa(limit+4)),
	})
	return nil
}

// sendersLeft wants room for one instance that streams and one that stands by.
func (e *examination) sendersLeft(ctx context.Context) error {
	var used, limit int
	var streaming bool
	err := e.server.SQL.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM pg_stat_replication), current_setting('max_wal_senders')::int,
			EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active)`, e.cfg.Slot).
		Scan(&used, &limit, &streaming)
	if err != nil {
		return err
	}
	f := ok("wal-senders", serverObject, fmt.Sprintf("%d of %d (max_wal_senders) in use", used, limit))
	needed := 2
	if streaming {
		needed = 1
	}
	if limit-used < needed {
		f.Level, f.Why = LevelWarning, "an instance that stands by needs one too, and so does every physical standby"
		if used >= limit && !streaming {
			f.Level, f.Why = LevelFault, "the stream's connection is refused"
		}
		f.Fix = e.provider.restart("max_wal_senders", strconv.Itoa(limit+4))
	}
	e.add(f)
	return nil
}

// Bounds of a wal_sender_timeout that serves: below the first a pause of the network ends the session,
// beyond the second an instance whose host died keeps the slot for longer than people wait.
const (
	shortSenderTimeout = 5 * time.Second
	longSenderTimeout  = 5 * time.Minute
)

func (e *examination) walSenderTimeout(ctx context.Context) error {
	timeout := e.cfg.WALSenderTimeout
	if timeout == 0 {
		var ms int64
		err := e.server.SQL.QueryRow(ctx,
			"SELECT setting::bigint FROM pg_settings WHERE name = 'wal_sender_timeout'").Scan(&ms)
		if err != nil {
			return err
		}
		timeout = time.Duration(ms) * time.Millisecond
	}
	const check = "wal-sender-timeout"
	found := fmt.Sprintf("wal_sender_timeout = %s", timeout)
	fix := "ALTER ROLE " + pgx.Identifier{e.role}.Sanitize() + " SET wal_sender_timeout = '60s'"
	switch {
	case timeout == 0:
		found += fmt.Sprintf(" (off): walrelay sets %s for its session", defaultWALSenderTimeout)
		e.add(ok(check, serverObject, found))
	case timeout < shortSenderTimeout:
		e.add(Finding{
			Check: check, Object: serverObject, Level: LevelWarning, Found: found,
			Why: fmt.Sprintf("status is reported every %s; a short pause of network or host ends the session, and "+
				"events repeat", min(e.cfg.StatusInterval, timeout/3)),
			Fix: fix,
		})
	case timeout > longSenderTimeout:
		e.add(Finding{
			Check: check, Object: serverObject, Level: LevelWarning, Found: found,
			Why: "an instance whose host died keeps the slot for that long, and the one standing by waits", Fix: fix,
		})
	default:
		e.add(ok(check, serverObject, found))
	}
	return nil
}

func (e *examination) encoding(ctx context.Context) error {
	var encoding string
	err := e.server.SQL.QueryRow(ctx,
		"SELECT pg_encoding_to_char(encoding)::text FROM pg_database WHERE datname = current_database()").Scan(&encoding)
	if err != nil {
		return err
	}
	object := quoted("database", e.database)
	switch encoding {
	case "UTF8":
		e.add(ok("encoding", object, "encoding UTF8"))
	case "SQL_ASCII":
		e.add(Finding{
			Check: "encoding", Object: object, Level: LevelWarning, Found: "encoding SQL_ASCII",
			Why: "the server checks no text, so keys, headers and payloads may hold bytes that are no UTF-8",
			Fix: "dump the database and restore it into one made with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0",
		})
	default:
		e.add(ok("encoding", object, "encoding "+encoding+"; text is sent as UTF-8"))
	}
	return nil
}

// clockTolerance is the difference of clocks that does not matter.
const clockTolerance = 5 * time.Second

func (e *examination) clock(ctx context.Context) error {
	var server time.Time
	before := time.Now()
	if err := e.server.SQL.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&server); err != nil {
		return err
	}
	took := time.Since(before)
	e.sample.ClockOffset = server.Sub(before) - took/2
	e.add(judgeClock(e.sample.ClockOffset, took))
	return nil
}

// judgeClock is about the server's clock minus ours, which is known to half the time that the answer took.
func judgeClock(offset, took time.Duration) Finding {
	f := ok("clock", serverObject, fmt.Sprintf("differs from this host's by %s", offset.Abs().Round(10*time.Millisecond)))
	if offset.Abs() > clockTolerance+took/2 {
		f.Level = LevelWarning
		f.Why = "records carry the server's commit time, and brokers refuse one that is an hour ahead of theirs"
		f.Fix = "timedatectl set-ntp true, on the host whose clock is wrong"
	}
	return f
}

func (e *examination) setting(ctx context.Context, name string) (value string, err error) {
	err = e.server.SQL.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value)
	return value, err
}

// joined lists names in a sentence, the first few of many.
func joined(names []string) string {
	const shown = 5
	if len(names) > shown {
		return strings.Join(slices.Clone(names[:shown]), ", ") + fmt.Sprintf(" and %d more", len(names)-shown)
	}
	return strings.Join(names, ", ")
}
