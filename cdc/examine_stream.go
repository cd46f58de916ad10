package cdc

import (
	"context"
	"errors"
	"fmt"
)

func (e *examination) streamChecks() []check {
	object := quoted("stream", e.cfg.Stream)
	return []check{
		{"stream", object, e.stream},
		{"dead-letters", object, e.deadLetters},
		{"verdicts", object, e.verdicts},
		{"start-check", object, e.startCheck},
	}
}

// begun says that the stream is recorded to have had a slot.
func (e *examination) begun() bool { return e.row != nil && e.row.Created != 0 }

// recorded reads the stream's row, and whether there is a table of them at all.
func (e *examination) recorded(ctx context.Context) (bool, error) {
	row, err := e.server.Registry().load(ctx)
	switch sqlState(err) {
	case "42P01", "3F000", "42703", "42501": // not migrated or not granted: said under schema
		return false, nil
	}
	e.row = row
	return err == nil, err
}

// stream compares what is recorded with what is configured, as far as a start would accept it.
func (e *examination) stream(ctx context.Context) error {
	there, err := e.recorded(ctx)
	if err != nil || !there {
		return err
	}
	object := quoted("stream", e.cfg.Stream)
	if e.row == nil {
		e.add(ok("stream", object, "not registered yet; the first start does it"))
		return nil
	}
	e.add(ok("stream", object, fmt.Sprintf("epoch %d, delivered %s, confirmed up to %s",
		e.row.Epoch, e.row.Delivery, e.row.Confirmed)))
	if err := e.pause(ctx); err != nil {
		return err
	}
	if l := e.row.LeftOut; l != nil {
		e.add(Finding{
			Check: "left-out", Object: object, Level: LevelWarning, Found: l.String(),
			Why: "consumers have not seen them", Fix: l.Replay(),
		})
	}
	differs := func(check, setting, recorded, configured string) {
		e.add(Finding{
			Check: check, Object: object, Level: LevelWarning,
			Found: fmt.Sprintf("recorded %s, configured %s", recorded, configured),
			Why: "the next start raises the epoch: consumers' fences hold, but order between the old and the new is not " +
				"promised",
			Fix: "go on if that is meant, with every instance stopped first; otherwise restore " + setting,
		})
	}
	if e.row.Delivery != e.cfg.Delivery {
		differs("stream-delivery", "WALRELAY_DELIVERY", e.row.Delivery, e.cfg.Delivery)
	}
	if e.row.Routing != e.cfg.Routing {
		differs("stream-routing", "WALRELAY_TOPIC, WALRELAY_COLUMN_KEY, WALRELAY_COLUMN_ID and WALRELAY_MESSAGE_PREFIX",
			e.row.Routing, e.cfg.Routing)
	}
	return nil
}

// pause is somebody's decision that nobody streams.
func (e *examination) pause(ctx context.Context) (err error) {
	if e.paused, err = e.server.Registry().Paused(ctx); err != nil || e.paused == nil {
		return err
	}
	e.add(Finding{
		Check: "stream-pause", Object: quoted("stream", e.cfg.Stream), Level: LevelWarning, Found: e.paused.String(),
		Why: "the server keeps the write-ahead log meanwhile", Fix: "walrelay stream resume " + e.cfg.Stream,
	})
	return nil
}

func (e *examination) deadLetters(ctx context.Context) error {
	if e.row == nil {
		return nil
	}
	var count, follow int64
	err := e.server.SQL.QueryRow(ctx, `
		SELECT count(*), count(*) FILTER (WHERE follow) FROM walrelay.dead_letters
		WHERE stream = $1 AND action <> 'skipped' AND redriven_at IS NULL`, e.cfg.Stream).Scan(&count, &follow)
	if err != nil {
		return err
	}
	object := quoted("stream", e.cfg.Stream)
	if count == 0 {
		e.add(ok("dead-letters", object, "none"))
		return nil
	}
	f := Finding{
		Check: "dead-letters", Object: object, Level: LevelWarning,
		Found: fmt.Sprintf("%d events did not reach their topic", count),
		Why:   "consumers of the topic have not seen them",
		Fix:   "walrelay deadletters list says why; mend that, and then: walrelay deadletters redrive POSITION",
	}
	if follow > 0 {
		f.Why += fmt.Sprintf("; later events of %d keys follow them", follow)
	}
	e.add(f)
	return nil
}

// verdicts wait until the stream is running.
func (e *examination) verdicts(ctx context.Context) error {
	if e.row == nil {
		return nil
	}
	releases, err := e.server.Registry().Releases(ctx)
	if err != nil {
		return err
	}
	if len(releases) > 0 {
		e.add(Finding{
			Check: "verdicts", Object: quoted("stream", e.cfg.Stream), Level: LevelWarning,
			Found: fmt.Sprintf("%d verdicts were given and not carried out", len(releases)),
			Why:   "the stream carries them out when it meets the event again, and may be stuck until then",
			Fix:   "walrelay run, unless an instance runs; walrelay stream show lists them",
		})
	}
	return nil
}

// startCheck makes the check that a start makes for what runs beside the stream.
func (e *examination) startCheck(ctx context.Context) error {
	if e.cfg.Check == nil {
		return nil
	}
	err := e.cfg.Check(ctx, e.server.SQL)
	fatal, is := errors.AsType[*FatalError](err)
	if !is {
		return err
	}
	e.add(Finding{
		Check: "start-check", Object: fatal.Object, Level: LevelFault, Found: fatal.Problem,
		Why: "the stream does not start", Fix: fatal.Remedy,
	})
	return nil
}
