package cdc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
)

// Limits of Examine.
const (
	// examineTimeout bounds one check, queries included.
	examineTimeout = 5 * time.Second
	// examineConnect bounds the way to one connection, all hosts included.
	examineConnect = 10 * time.Second
	// openTooLong is the age from which an open transaction is worth a warning.
	openTooLong = 5 * time.Minute
)

// serverObject names the server in findings that are about it as a whole.
const serverObject = "server"

// examination is one run of Examine.
type examination struct {
	cfg    *Config
	server Server // its SQL connection is read-only; Repl is closed again once it has been tried

	role, database string
	application    string // application_name of the stream's connections
	noPrimary      bool   // the server replays another's log, or refuses writes for another reason
	identified     bool   // the replication connection worked: SystemID, Timeline and timelines are known
	provider       provider
	openTooLong    time.Duration

	paused   *Pause       // nil: it is not
	row      *registryRow // of the stream; nil: not registered, or not readable
	slot     Slot
	sample   Sample
	findings []Finding
}

// Examine looks at everything about the server that a stream with this configuration depends on, and
// changes nothing: its queries are read-only, it takes no slot and makes no object. It works before
// anything was set up, and beside a running instance. A check that cannot be made is a finding too.
// sampled is called once, from this goroutine, as soon as the outbox tables were looked at, or could not
// be: what it gets holds rows, and must not be printed.
func Examine(ctx context.Context, cfg *Config, sampled func(Sample)) []Finding {
	return newExamination(cfg).run(ctx, sampled)
}

func newExamination(cfg *Config) *examination {
	quiet := *cfg
	quiet.Logger = zap.NewNop() // what matters is a finding
	return &examination{
		cfg: &quiet, server: Server{cfg: &quiet, log: quiet.Logger}, openTooLong: openTooLong,
	}
}

// check is one check of the list, and what it is about should it fail.
type check struct {
	id, object string
	run        func(context.Context) error
}

func (e *examination) run(ctx context.Context, sampled func(Sample)) []Finding {
	e.transport()
	connected := e.connect(ctx)
	defer func() { e.server.Close(context.WithoutCancel(ctx)) }()
	if !connected {
		sampled(e.sample)
		return e.findings
	}
	e.perform(ctx, check{"identity", serverObject, e.identity}, check{"clock", serverObject, e.clock})
	e.perform(ctx, check{"sample", "outbox tables", e.takeSample})
	sampled(e.sample)
	e.perform(ctx, e.serverChecks()...)
	e.replication(ctx) // after the senders were counted, of which it takes one for a moment
	e.perform(ctx, e.accessChecks()...)
	e.perform(ctx, e.streamChecks()...)
	e.perform(ctx, e.publicationChecks()...)
	e.perform(ctx, e.slotChecks()...)
	e.perform(ctx, e.transactionChecks()...)
	e.perform(ctx, e.failoverChecks()...)
	return e.findings
}

// perform makes the checks one after the other, each within its own time.
func (e *examination) perform(ctx context.Context, checks ...check) {
	for _, c := range checks {
		if err := e.attempt(ctx, c.run); err != nil {
			e.unknown(c.id, c.object, err)
		}
	}
}

func (e *examination) attempt(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	if e.server.SQL.IsClosed() { // the check before took too long
		conn, err := e.open(ctx, false)
		if err != nil {
			return err
		}
		e.server.SQL = conn
	}
	return run(ctx)
}

func (e *examination) add(f Finding) { e.findings = append(e.findings, f) }

// unknown adds what could not be looked at. Only the server's message is shown: its detail may quote a row.
func (e *examination) unknown(id, object string, err error) {
	f := Finding{
		Check: id, Object: object, Level: LevelUnknown, Found: "could not be looked at: " + Reason(err),
		Why: "what is wrong here stays unseen", Fix: "run `walrelay doctor` again",
	}
	if sqlState(err) == "42501" && e.role != "" { // insufficient_privilege
		f.Fix = "GRANT pg_monitor TO " + pgx.Identifier{e.role}.Sanitize() +
			", or run `walrelay doctor` as a role that may see it"
	}
	e.add(f)
}

// Reason is an error in a few words: of a server's error the message and the SQLSTATE, without its detail.
func Reason(err error) string {
	if fatal, ok := errors.AsType[*FatalError](err); ok {
		if fatal.Err != nil {
			return fatal.Problem + ": " + Reason(fatal.Err)
		}
		return fatal.Problem
	}
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		return fmt.Sprintf("%s (SQLSTATE %s)", server.Message, server.Code)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "it took too long"
	}
	return err.Error()
}

// identity reads who we are.
func (e *examination) identity(ctx context.Context) error {
	return e.server.SQL.QueryRow(ctx, `
		SELECT current_user::text, current_database()::text, current_setting('server_version_num')::int`).
		Scan(&e.role, &e.database, &e.server.Version)
}
