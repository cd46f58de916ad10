package cdc

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

// LeftOut is a part of the log that an operator has left out with `walrelay slot`, as the registry has it until its
// rows are published again. A second one before that is made one with the first.
type LeftOut struct {
	How  LeftOutHow `json:"how"`
	By   string     `json:"by"`   // database role
	At   time.Time  `json:"at"`   // on the server's clock, as are the others
	From lsnText    `json:"from"` // what is committed between these positions is not streamed
	To   lsnText    `json:"to"`
	// Since and Until are when: what was committed before Since was streamed, and what is after Until will be.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	Named bool      `json:"named"` // a start has said so
}

// LeftOutHow says how a part of the log was left out.
type LeftOutHow string

const (
	advanced  LeftOutHow = "advanced"
	dropped   LeftOutHow = "dropped" // and not created again yet
	recreated LeftOutHow = "recreated"
)

// String says what is missing, who wanted that and when.
func (l *LeftOut) String() string {
	command := "drop"
	if l.How == advanced {
		command = "advance"
	}
	return fmt.Sprintf("rows committed between %s and %s are not streamed: role %q left them out with `walrelay slot %s` "+
		"at %s", pglogrepl.LSN(l.From), pglogrepl.LSN(l.To), l.By, command, l.At.UTC().Format(time.RFC3339))
}

// Dropped says that the slot was dropped, and is not there again.
func (l *LeftOut) Dropped() bool { return l.How == dropped }

// Replay is the command that publishes these rows.
func (l *LeftOut) Replay() string {
	return "walrelay replay --since " + l.Since.Add(-gapMargin).UTC().Format(time.RFC3339) +
		" --until " + l.Until.Add(time.Second).UTC().Format(time.RFC3339)
}

// GivenUp is how a slot ended that kept more log than its budget: see Stream.giveUp.
type GivenUp struct {
	At        time.Time `json:"at"`
	Since     time.Time `json:"since"`
	Confirmed lsnText   `json:"confirmed_lsn"`
	Until     lsnText   `json:"until_lsn"`
	Retained  int64     `json:"retained_bytes"`
}

// String says what became of the slot, and what is missing.
func (g *GivenUp) String() string {
	return fmt.Sprintf("the slot was dropped at %s, since it kept %d bytes of write-ahead log, more than "+
		"WALRELAY_WAL_BUDGET allowed; %s, that is from %s on", g.At.UTC().Format(time.RFC3339), g.Retained,
		gapBetween(pglogrepl.LSN(g.Confirmed), pglogrepl.LSN(g.Until)), g.Since.UTC().Format(time.RFC3339))
}

// since is the time from which a replay closes the gap.
func (g *GivenUp) since() string { return g.Since.Add(-gapMargin).UTC().Format(time.RFC3339) }

// lsnText is an LSN in a JSON document.
type lsnText pglogrepl.LSN

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *lsnText) UnmarshalText(text []byte) error {
	lsn, err := pglogrepl.ParseLSN(string(text))
	*l = lsnText(lsn)
	return err
}

// leaveOut records that what lies between two positions is left out, before it is: a crash in between leaves a note
// of rows that were streamed after all, which is the lesser evil. Retention keeps the rows of the gap from now on.
// undo takes it back.
func (r *Registry) leaveOut(
	ctx context.Context, how LeftOutHow, from, to pglogrepl.LSN,
) (undo func(context.Context), err error) {
	var before []byte
	var covered *string // in the server's text, since it may be infinite
	err = r.db.QueryRow(ctx, `
		UPDATE walrelay.streams s SET updated_at = now(), covered_since = clock_timestamp(), left_out = jsonb_build_object(
			'how', $2::text, 'by', current_user, 'at', clock_timestamp(), 'named', false,
			'from', coalesce(old.left_out ->> 'from', $3), 'to', $4::text,
			'since', coalesce((old.left_out ->> 'since')::timestamptz, old.settled_at, old.created_at),
			'until', clock_timestamp())
		FROM (SELECT * FROM walrelay.streams WHERE name = $1 FOR UPDATE) AS old
		WHERE s.name = $1
		RETURNING old.left_out, old.covered_since::text`, r.stream, string(how), from.String(), to.String()).
		Scan(&before, &covered)
	if err != nil {
		return nil, Diagnose(fmt.Errorf("record what is left out: %w", err))
	}
	return func(ctx context.Context) {
		_, _ = r.db.Exec(ctx, "UPDATE walrelay.streams SET left_out = $2::jsonb, covered_since = $3::text::timestamptz "+
			"WHERE name = $1", r.stream, before, covered) // at worst the note stays, and rows with it
	}, nil
}

// nameLeftOut notes that a start has told of it.
func (r *Registry) nameLeftOut(ctx context.Context) error {
	return r.exec(ctx, "record what is left out", `
		UPDATE walrelay.streams SET left_out = left_out || '{"named": true}', updated_at = now()
		WHERE name = $1 AND left_out IS NOT NULL`, r.stream)
}

// Republished forgets what was left out, if the replay of that name, which is done, has published all of it: it was
// begun afterwards, over all tables, and its range (a zero time is no bound) holds the gap.
func (r *Registry) Republished(ctx context.Context, replay string, since, until time.Time) error {
	return r.exec(ctx, "record what is published again", `
		UPDATE walrelay.streams s SET left_out = NULL, updated_at = now()
		FROM walrelay.replays p
		WHERE s.name = $1 AND p.stream = $1 AND p.name = $2 AND s.left_out ->> 'how' <> 'dropped'
			AND p.started_at >= (s.left_out ->> 'until')::timestamptz
			AND coalesce($3 <= (s.left_out ->> 'since')::timestamptz, true)
			AND coalesce($4 >= (s.left_out ->> 'until')::timestamptz, true)`,
		r.stream, replay, zeroIsNull(since), zeroIsNull(until))
}
