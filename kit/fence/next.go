package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/kit/tx"
)

// Source gives out tokens. Rows is the one in PostgreSQL; etcd (the revision at which the key of a lock was
// created) and ZooKeeper (its czxid) need a few lines each.
type Source interface {
	// Next returns a token that is larger than every one it has returned for the resource, to anybody,
	// whatever has failed since. It is called by many goroutines at once.
	Next(ctx context.Context, resource string) (Token, error)
}

// Rows is the Source in table walrelay_kit.fences.
type Rows struct {
	DB tx.Tx // a pool or connection: each token is committed before it is returned
}

// Next implements Source.
func (r Rows) Next(ctx context.Context, resource string) (Token, error) {
	return Next(ctx, r.DB, resource)
}

// ErrResource is returned for an empty name of a resource.
var ErrResource = errors.New("a resource needs a name")

// serverSQL is what the server is now. pg_control_checkpoint() is of no use here: after a promotion it
// shows the old timeline until the next checkpoint has ended (PostgreSQL's CreateEndOfRecoveryRecord
// leaves the control file's copy of the checkpoint alone), while the name of the current segment has the
// timeline that is being written. Every role may ask, and a standby refuses.
//
// A token must not outlive its row: with synchronous_commit off a crash, which does not change the
// timeline, would take the counter back. So the commit waits for the local disk, whatever the role's
// default; a stronger setting stays.
const serverSQL = `server AS MATERIALIZED (
	SELECT system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint AS timeline,
		CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'local', true) END
	FROM pg_control_system())`

// raiseSQL moves row f to a new token under server s: the timeline's part grows with the server's, and
// beyond what it was when that went back (an upgrade begins at timeline 1 again).
const raiseSQL = `system_identifier = s.system_identifier, timeline = s.timeline, counter = f.counter + 1,
	term_offset = CASE WHEN f.system_identifier = s.system_identifier AND f.timeline <= s.timeline
		THEN f.term_offset ELSE f.timeline + f.term_offset + 1 - s.timeline END,
	updated_at = clock_timestamp()`

const newestSQL = `((f.timeline + f.term_offset) << 40) | f.counter`

// firstSQL begins a row above everything that Purge has removed. The lock keeps Purge away meanwhile.
const firstSQL = `WITH ` + serverSQL + `, floor AS MATERIALIZED (
		SELECT counter, timeline + term_offset AS term FROM walrelay_kit.fences WHERE resource = '' FOR SHARE)
	INSERT INTO walrelay_kit.fences AS f (resource, system_identifier, timeline, term_offset, counter)
	SELECT $1, s.system_identifier, s.timeline, greatest(floor.term - s.timeline, 0), floor.counter
	FROM server s, floor ON CONFLICT (resource) DO NOTHING`

const nextSQL = `WITH ` + serverSQL + ` UPDATE walrelay_kit.fences f
	SET ` + raiseSQL + `, holder = NULL, expires_at = NULL
	FROM server s WHERE f.resource = $1 RETURNING ` + newestSQL

// Next returns a new token for the resource. Whoever held a lease on it has lost it.
//
// With db in a transaction the token is worth nothing before the commit: after a rollback the next caller
// gets the same one. Others who ask for a token of the resource wait for the transaction's end. Give a
// pool, or commit before use.
//
// Tokens keep growing across crashes and promotions, also asynchronous ones that lost the last rows, as the
// timeline is their upper part. They rely on every promotion choosing a timeline that was not used before,
// which PostgreSQL does when the standby has followed the one before it, or shares an archive with it. After
// any other restore call Raise.
func Next(ctx context.Context, db tx.Tx, resource string) (Token, error) {
	if resource == "" {
		return 0, ErrResource
	}
	for { // a second round only for a new resource, a third when Purge took it in between
		var token Token
		err := db.QueryRow(ctx, nextSQL, resource).Scan(&token)
		if err == nil {
			return token, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return 0, fmt.Errorf("take fencing token: %w", err)
		}
		if err := begin(ctx, db, resource); err != nil {
			return 0, err
		}
	}
}

// ErrFloor is returned when the row of walrelay_kit.fences with the empty name is gone, as by TRUNCATE, and with it
// what keeps tokens from going back. Insert it again, as the migration does, and Raise the resources in use.
var ErrFloor = errors.New("walrelay_kit.fences has no row with the empty name, " +
	"INSERT INTO walrelay_kit.fences (resource, system_identifier, timeline, counter) VALUES ('', 0, 0, 0), " +
	"then call fence.Raise for the resources in use")

const hasFloorSQL = `SELECT EXISTS (SELECT FROM walrelay_kit.fences WHERE resource = '')`

func begin(ctx context.Context, db tx.Tx, resource string) error {
	tag, err := db.Exec(ctx, firstSQL, resource)
	if err != nil {
		return fmt.Errorf("begin tokens of a resource: %w", err)
	}
	if tag.RowsAffected() > 0 {
		return nil
	}
	var floor bool // the resource is there already, or nothing could be taken for its beginning
	if err := db.QueryRow(ctx, hasFloorSQL).Scan(&floor); err != nil {
		return fmt.Errorf("begin tokens of a resource: %w", err)
	}
	if !floor {
		return ErrFloor
	}
	return nil
}

const liftSQL = `WITH ` + serverSQL + ` UPDATE walrelay_kit.fences f SET system_identifier = s.system_identifier,
	timeline = s.timeline, term_offset = greatest($2::bigint >> 40, f.timeline + f.term_offset, s.timeline) - s.timeline,
	counter = greatest($2::bigint & 1099511627775, f.counter),
	holder = NULL, expires_at = NULL, updated_at = clock_timestamp()
	FROM server s WHERE f.resource = $1 AND ` + newestSQL + ` < $2`

// Raise makes the next token of the resource larger than one that was seen in use. It mends what a
// restore from a dump or an old backup, or two promotions that did not know of each other, have taken back.
// A lease on the resource is lost.
func Raise(ctx context.Context, db tx.Tx, resource string, seen Token) error {
	if resource == "" {
		return ErrResource
	}
	if err := begin(ctx, db, resource); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, liftSQL, resource, seen); err != nil {
		return fmt.Errorf("raise fencing token: %w", err)
	}
	return nil
}

// The floor comes first: whoever begins a row waits for its lock, and then reads the raised one.
const (
	floorSQL = `UPDATE walrelay_kit.fences f SET counter = greatest(f.counter, gone.counter),
		term_offset = greatest(f.term_offset, gone.term)
		FROM (SELECT max(counter) AS counter, max(timeline + term_offset) AS term FROM walrelay_kit.fences) gone
		WHERE f.resource = ''`
	purgeSQL = `DELETE FROM walrelay_kit.fences f USING walrelay_kit.fences floor
		WHERE floor.resource = '' AND f.resource <> '' AND f.counter <= floor.counter
		AND f.updated_at < clock_timestamp() - $1::interval
		AND (f.expires_at IS NULL OR f.expires_at < clock_timestamp() - $1::interval)`
	purgeMarksSQL = `DELETE FROM walrelay_kit.fence_marks WHERE updated_at < clock_timestamp() - $1::interval`
)

// Purge removes the rows of resources without a lease that had no token for idle. Tokens that are given
// later are larger than all removed ones. Marks of Admit that are as old are removed too: idle has to be
// longer than any holder of a token could be paused: days rather than minutes.
func Purge(ctx context.Context, db tx.Tx, idle time.Duration) (removed int64, err error) {
	if idle <= 0 {
		return 0, fmt.Errorf("purge fences idle for %s: %w", idle, ErrDuration)
	}
	for _, sql := range []string{floorSQL, purgeSQL, purgeMarksSQL} {
		var args []any
		if sql != floorSQL {
			args = []any{idle}
		}
		tag, err := db.Exec(ctx, sql, args...)
		if err != nil {
			return removed, fmt.Errorf("purge fences: %w", err)
		}
		if sql != floorSQL {
			removed += tag.RowsAffected()
		}
	}
	return removed, nil
}

// ErrDuration is returned for durations that are not positive.
var ErrDuration = errors.New("must be above zero")
