package cdc

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// Secret is a string that never shows itself: whatever prints or marshals it gets a placeholder.
type Secret string

const redacted = "[redacted]"

// String returns a placeholder.
func (Secret) String() string { return redacted }

// GoString returns a placeholder.
func (Secret) GoString() string { return redacted }

// MarshalText returns a placeholder.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Config says what a stream reads and how. All fields are required unless said otherwise.
type Config struct {
	// ConnString is a URL or a keyword/value string as libpq has them, hosts may be several. Empty:
	// the PG* variables and their defaults. It carries a password, so it is never printed.
	ConnString Secret
	// ReadConnString returns the string to use instead, for each connection anew: it may change while the process runs.
	// Optional. Safe for concurrent use.
	ReadConnString func() (Secret, error)

	// Stream is the stream's name in the registry, in the records' headers and in messages.
	Stream string
	// Slot is the logical replication slot.
	Slot string
	// Publication is the publication that lists the outbox tables.
	Publication string
	// Failover creates the slot so that PostgreSQL 17 and later copies it to standbys. Optional.
	Failover bool

	// Backfill publishes what was in the tables before the slot is created. Optional: nil leaves it out.
	Backfill Backfill

	// Mappings lists the outbox tables.
	Mappings []decoder.Mapping
	// Messages lists the prefixes of logical messages that are events, see decoder.MessageMapping and
	// decoder.BinaryMapping. Optional: without any the server sends no messages.
	Messages []*decoder.Mapping
	// RefuseStray records messages of these prefixes that are not transactional among the dead letters. They are
	// never events. Optional.
	RefuseStray bool
	// Routing is a fingerprint of everything that decides about topic, key and partition of an
	// event. Another one than recorded raises the stream's epoch.
	Routing string
	// Delivery is AtLeastOnce or ExactlyOnce. Another one than recorded raises the stream's epoch.
	Delivery string

	// Nullability has the columns of outbox tables described with what is NOT NULL. Optional.
	Nullability bool
	// OnUpdate is what becomes of updates. Optional: IgnoreUpdates.
	OnUpdate UpdatePolicy

	// ConnectTimeout limits one attempt to connect to one host.
	ConnectTimeout time.Duration
	// StatusInterval is the time between two status reports and between two checks of the publication.
	StatusInterval time.Duration
	// WALSenderTimeout is set on the replication connection as wal_sender_timeout: how long a dead
	// session keeps the slot. Optional: 0 leaves the server's own, unless that is off.
	WALSenderTimeout time.Duration
	// ReceiveTimeout is how long the server may stay silent before the connection counts as dead.
	ReceiveTimeout time.Duration
	// ShutdownTimeout limits the wait for acknowledgements when the stream stops.
	ShutdownTimeout time.Duration
	// BackoffMin and BackoffMax bound the pause between two attempts.
	BackoffMin, BackoffMax time.Duration

	// Window limits what may be in flight.
	Window checkpoint.Window
	// MaxMessageBytes limits one message of the server: one row, or one logical message.
	MaxMessageBytes int
	// FollowKey sends later events of a dead-lettered key after it. Optional.
	FollowKey bool

	// Budget limits the log that the server keeps for the slot. Optional.
	Budget Budget

	// MarkTransactions gives every event its place in its transaction, see decoder.Event.Marked. Optional.
	MarkTransactions bool

	// Check looks at the database before anything is created there, for what runs beside the stream. It is
	// called at each attempt to start until it has passed once; a *FatalError ends the stream. Optional.
	Check func(ctx context.Context, db *pgx.Conn) error

	// Logger names stream and slot already: nothing here repeats them.
	Logger *zap.Logger
}

// The delivery modes.
const (
	AtLeastOnce = "at-least-once"
	// ExactlyOnce confirms only what the sink has written a state for: see checkpoint.State.
	ExactlyOnce = "exactly-once"
)

// FieldError says which rule a field of Config breaks. It carries no secret.
type FieldError struct {
	// Field is the name of Config's field.
	Field string
	// Rule is one sentence, value included.
	Rule string
}

func (e *FieldError) Error() string { return e.Field + " " + e.Rule }

var (
	slotName   = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)
	streamName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
)

// identifierMax is the longest identifier in bytes: NAMEDATALEN - 1. The server would cut a longer one.
const identifierMax = 63

// Validate returns every broken rule at once, joined; each is a *FieldError.
func (c *Config) Validate() error {
	var faults []error
	require := func(ok bool, field, rule string, args ...any) {
		if !ok {
			faults = append(faults, &FieldError{Field: field, Rule: fmt.Sprintf(rule, args...)})
		}
	}
	if c.ConnString != "" {
		_, err := parseConnString(c.ConnString)
		require(err == nil, "ConnString", "is not a PostgreSQL connection string: %v", err)
	}
	require(streamName.MatchString(c.Stream), "Stream",
		"must be 1 to 100 letters, digits, dots, dashes or underscores, not %q", c.Stream)
	require(slotName.MatchString(c.Slot), "Slot",
		"must be 1 to 63 lower-case letters, digits or underscores, not %q", c.Slot)
	require(isIdentifier(c.Publication), "Publication", "must be 1 to 63 bytes, not %q", c.Publication)
	require(c.Routing != "", "Routing", "must not be empty")
	require(c.Delivery == AtLeastOnce || c.Delivery == ExactlyOnce, "Delivery",
		"must be %s or %s, not %q", AtLeastOnce, ExactlyOnce, c.Delivery)
	require(c.Logger != nil, "Logger", "must not be nil")

	require(len(c.Mappings) > 0, "Mappings", "must name at least one outbox table")
	seen := make(map[[2]string]bool)
	for _, m := range c.Mappings {
		table := tableName(m.Schema, m.Table)
		require(isIdentifier(m.Schema) && isIdentifier(m.Table), "Mappings",
			"must have schema and table of 1 to 63 bytes each, not %s", table)
		require(m.ID != "", "Mappings", "must name the id column of %s", table)
		require(m.Payload != "", "Mappings", "must name the payload column of %s", table)
		require(!seen[[2]string{m.Schema, m.Table}], "Mappings", "must name %s only once", table)
		seen[[2]string{m.Schema, m.Table}] = true
	}
	prefixes := make(map[string]bool)
	for _, m := range c.Messages {
		require(m.Prefix != "", "Messages", "must have a prefix")
		require(!prefixes[m.Prefix], "Messages", "must name prefix %q only once", m.Prefix)
		prefixes[m.Prefix] = true
	}

	positive := func(d time.Duration, field string) { require(d > 0, field, "must be longer than 0, not %s", d) }
	positive(c.ConnectTimeout, "ConnectTimeout")
	positive(c.StatusInterval, "StatusInterval")
	positive(c.ReceiveTimeout, "ReceiveTimeout")
	positive(c.ShutdownTimeout, "ShutdownTimeout")
	positive(c.BackoffMin, "BackoffMin")
	require(c.BackoffMax >= c.BackoffMin, "BackoffMax",
		"must be at least BackoffMin (%s), not %s", c.BackoffMin, c.BackoffMax)
	require(c.WALSenderTimeout == 0 || c.WALSenderTimeout >= 3*c.StatusInterval, "WALSenderTimeout",
		"must be 0 or at least three times StatusInterval (%s), not %s", c.StatusInterval, c.WALSenderTimeout)
	require(c.Window.Events > 0, "Window", "must allow at least 1 event, not %d", c.Window.Events)
	require(c.Window.Bytes > 0, "Window", "must allow at least 1 byte, not %d", c.Window.Bytes)
	require(c.MaxMessageBytes > 0, "MaxMessageBytes", "must be greater than 0, not %d", c.MaxMessageBytes)
	return errors.Join(faults...)
}

func isIdentifier(s string) bool {
	if s == "" || len(s) > identifierMax {
		return false
	}
	for i := range len(s) {
		if s[i] == 0 {
			return false
		}
	}
	return true
}
