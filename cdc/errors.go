package cdc

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// FatalError is a condition that trying again cannot mend: the process ends with a status other
// than 0 and a person must act. Everything else is tried again with backoff.
type FatalError struct {
	// Object is what it is about, for instance `slot "orders"`.
	Object string
	// Problem says what is wrong with it, and which part of the log may be lost if any is.
	Problem string
	// Remedy says what to do.
	Remedy string
	// Err is the server's error, if there was one.
	Err error
}

// Error returns one line: what is wrong, then what to do.
func (e *FatalError) Error() string {
	var b strings.Builder
	b.WriteString(e.Object + ": " + e.Problem)
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Remedy != "" {
		b.WriteString("; to go on: " + e.Remedy)
	}
	return strings.ReplaceAll(b.String(), "\n", " ")
}

// Unwrap returns the server's error.
func (e *FatalError) Unwrap() error { return e.Err }

// Fatal reports whether err ends the process.
func Fatal(err error) bool {
	var fatal *FatalError
	return errors.As(err, &fatal)
}

// SlotActiveError says that another session streams from the slot: this one stands by.
type SlotActiveError struct {
	// PID is the server process that holds the slot; 0 when the server did not say.
	PID int32
	Err error
}

func (e *SlotActiveError) Error() string {
	return "slot is in use by server process " + strconv.Itoa(int(e.PID))
}

// Unwrap returns the server's error.
func (e *SlotActiveError) Unwrap() error { return e.Err }

// ErrRecovery is returned while the server replays its log: it is a standby, or about to be promoted.
var ErrRecovery = errors.New("server is in recovery")

// Diagnose is the one place that decides what an error of PostgreSQL means. It returns a
// *FatalError or a *SlotActiveError for what it recognises and err itself for everything that is
// worth another try. SQLSTATEs: https://www.postgresql.org/docs/current/errcodes-appendix.html
func Diagnose(err error) error {
	var known *FatalError
	var server *pgconn.PgError
	if err == nil || errors.As(err, &known) || !errors.As(err, &server) {
		// Network trouble, time-outs, TLS and name resolution come and go.
		return err
	}
	fatal := func(object, problem, remedy string) error {
		return &FatalError{Object: object, Problem: problem, Remedy: remedy, Err: err}
	}
	text := server.Message
	switch server.Code {
	case "55006": // object_in_use: another walsender has the slot; perhaps a dead one, until its time-out
		return &SlotActiveError{PID: lastNumber(text), Err: err}
	case "55000": // object_not_in_prerequisite_state has many meanings; the text depends on the version
		return diagnosePrerequisite(err, text)
	case "3D000": // invalid_catalog_name: databases do not come back by themselves
		return fatal("database", "does not exist", "create it, or correct the connection string")
	case "42501": // insufficient_privilege: only a GRANT or ALTER ROLE helps
		return fatal("role", "lacks a privilege", privilegeRemedy(text))
	case "42P01", "3F000", "42703", "23514": // undefined table, schema or column, check_violation: ours, in our SQL
		return fatal("schema walrelay", "is missing or older than this program", "run `walrelay migrate`")
	case "42704": // undefined_object: slot, publication or a setting; re-creating one hides a gap
		return fatal("server", "lacks an object that the stream needs",
			"if it was dropped, make it again, run `walrelay stream new-epoch NAME`, start walrelay, and then publish the rows "+
				"of the gap again: `walrelay replay --since TIME`")
	case "08P01": // protocol_violation
		if strings.Contains(text, "startup parameter") {
			return fatal("connection", "goes through a pooler, which cannot carry replication", "connect directly to PostgreSQL")
		}
		return err
	case "42601", "0A000": // syntax_error, feature_not_supported: this is not a server we can stream from
		return fatal("server", "does not understand logical replication with pgoutput",
			"connect directly to a PostgreSQL server, version 14 or later")
	case "58P01": // undefined_file
		if strings.Contains(text, "has already been removed") {
			return fatal("slot", "needs write-ahead log that the server no longer has", lostSlotRemedy)
		}
		return err
	}
	// What remains is worth another try. In particular:
	//   28P01, 28000  a password or pg_hba.conf may be in the middle of a rotation
	//   53300, 53xxx  resources are exhausted for now
	//   57P01..57P05  the server is stopping, starting or ended an idle session; 57014 it cancelled
	//   25006         the server became read-only: a failover is under way
	//   40xxx, 55P03  a conflict or a lock
	//   58xxx, XXxxx  trouble on the server's side, which a failover may end
	return err
}

// privilegeRemedy is the statement that gives what the server says to be missing.
func privilegeRemedy(text string) string {
	for kind, right := range map[string]string{"database": "CONNECT", "schema": "USAGE"} {
		if _, object, found := strings.Cut(text, "permission denied for "+kind+" "); found {
			return fmt.Sprintf("GRANT %s ON %s %s TO the role", right, strings.ToUpper(kind), object)
		}
	}
	if _, table, found := strings.Cut(text, "permission denied for table "); found {
		rights, ours := tableRights(table)
		if !ours {
			return fmt.Sprintf("GRANT %s ON %s TO the role", rights, table)
		}
		return fmt.Sprintf("GRANT %s ON walrelay.%s TO the role", rights, table)
	}
	return "grant it; replication needs ALTER ROLE ... REPLICATION (on RDS: GRANT rds_replication TO ...)"
}

// tableRights is what all commands together need of a table, and whether it is one of walrelay's own.
func tableRights(table string) (rights string, ours bool) {
	switch table {
	case "streams", "dead_letters", "replays":
		return "SELECT, INSERT, UPDATE", true
	case "releases":
		return "SELECT, INSERT, UPDATE, DELETE", true
	case "schema_version":
		return "SELECT", true
	default: // an outbox
		return "SELECT", false
	}
}

const lostSlotRemedy = "drop the slot (SELECT pg_drop_replication_slot('NAME')), " +
	"run `walrelay stream new-epoch NAME`, start walrelay, " +
	"and then publish the rows of the gap again: `walrelay replay --since TIME`"

// diagnosePrerequisite tells the meanings of SQLSTATE 55000 apart. The texts are those of
// src/backend/replication/{slot.c,slotfuncs.c,logical/logical.c} of PostgreSQL 14 to 18; with
// another lc_messages none matches, and the next attempt finds the cause in pg_replication_slots.
func diagnosePrerequisite(err error, text string) error {
	switch {
	case strings.Contains(text, "cannot be used on RO node"), // Aurora's reader during a failover
		strings.Contains(text, "recovery"):
		return err
	case strings.Contains(text, "cannot read from logical replication slot"), // 14 to 17
		strings.Contains(text, "can no longer access replication slot"), // 18
		strings.Contains(text, "invalidated"),
		strings.Contains(text, "can no longer get changes from replication slot"): // 14 to 15, SQL functions
		return &FatalError{Object: "slot", Problem: "was invalidated by the server", Remedy: lostSlotRemedy, Err: err}
	case strings.Contains(text, "was not created in this database"):
		return &FatalError{
			Object: "slot", Problem: "belongs to another database", Err: err,
			Remedy: "correct the connection string or the slot's name",
		}
	case strings.Contains(text, "wal_level"):
		return &FatalError{
			Object: "server", Problem: "does not log enough for logical decoding", Err: err,
			Remedy: "set wal_level = logical and restart PostgreSQL",
		}
	default:
		return err
	}
}

// lastNumber finds the process id in a message in any language: it is the last number there.
func lastNumber(text string) int32 {
	digits := regexp.MustCompile(`(\d+)\D*$`).FindStringSubmatch(text)
	if digits == nil {
		return 0
	}
	n, err := strconv.ParseInt(digits[1], 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// quoted names an object of the server in a message.
func quoted(kind, name string) string { return fmt.Sprintf("%s %q", kind, name) }

// sqlState returns the SQLSTATE of a server's error, or nothing.
func sqlState(err error) string {
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		return server.Code
	}
	return ""
}
