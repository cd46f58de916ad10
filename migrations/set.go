package migrations

import (
	"context"
	"database/sql"
	"embed"
	"io"
)

//go:embed sql/*.sql kit/*.sql
var files embed.FS

// set is one line of migrations, with its own numbers and its own record of what was applied.
type set struct {
	user    string // whom it serves
	dir     string // in files
	schema  string
	purpose string // comment on the schema
}

func relay() set {
	return set{
		user: "walrelay", dir: "sql", schema: "walrelay",
		purpose: "State of walrelay, which streams outbox tables to Kafka. Not for applications.",
	}
}

func kit() set {
	return set{
		user: "walrelay/kit", dir: "kit", schema: "walrelay_kit",
		purpose: "State of walrelay''s kit, which applications import: inbox, idempotency keys, fencing tokens.",
	}
}

// Up applies what is pending of the relay's migrations, each in a transaction of its own, and returns
// the names of those that it applied, also beside an error. Any number of callers may run it at once:
// one works, the others wait for it, for five minutes at most. With nothing pending it only reads.
func Up(ctx context.Context, db *sql.DB) (applied []string, err error) { return relay().up(ctx, db) }

// UpKit is Up for the tables of kit.
func UpKit(ctx context.Context, db *sql.DB) (applied []string, err error) { return kit().up(ctx, db) }

// Status lists the relay's migrations in their order. It changes nothing and works on an empty database.
func Status(ctx context.Context, db *sql.DB) ([]State, error) { return relay().status(ctx, db) }

// StatusKit is Status for the tables of kit.
func StatusKit(ctx context.Context, db *sql.DB) ([]State, error) { return kit().status(ctx, db) }

// Print writes the SQL of all the relay's migrations, together with the rows that record them as applied.
func Print(w io.Writer) error { return relay().write(w) }

// PrintKit is Print for the tables of kit.
func PrintKit(w io.Writer) error { return kit().write(w) }
