package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/cdc/replay"
	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/sink"
)

type replayCommand struct {
	Start  replayStartCommand  `cmd:"" default:"withargs" help:"Publish rows again; the word start may be left out."`
	Resume replayResumeCommand `cmd:"" help:"Go on with a replay that was interrupted."`
	List   replayListCommand   `cmd:"" help:"List the stream's replays."`
}

// backfillName is the name of the replay that comes before a stream.
const backfillName = "backfill"

//nolint:lll // a struct tag cannot be broken over lines
type replayStartCommand struct {
	ID     []string  `sep:"none" help:"Id of a row; may be repeated."`
	IDFile string    `help:"File of ids, one a line; - is the standard input."`
	Since  time.Time `help:"First moment of a time range, as 2026-11-30T20:00:00Z."`
	Until  time.Time `help:"End of the time range; not part of it."`
	All    bool      `help:"Every row."`
	Table  []string  `sep:"none" help:"Only this table of the configured ones, as schema.table; may be repeated."`
	Name   string    `help:"Name of the replay, in the header walrelay-replay. Default: the time."`
	Time   *string   `name:"time-column" help:"Column that orders the rows and makes the range; empty: none. Default: WALRELAY_RETENTION_COLUMN, or the table's own."`
	Rate   int       `help:"Most rows in a second; 0: no limit."`
	DryRun bool      `help:"Say what would be published, and publish nothing."`
}

// Run begins a replay and carries it out.
func (c *replayStartCommand) Run(ctx context.Context, cmd *command) error {
	record, err := c.record(cmd.settings)
	if err != nil {
		return usageError{err}
	}
	return cmd.withReplays(ctx, func(ledger *replay.Ledger, config *cdc.Config, events *sink.Config) error {
		if record.Tables, err = c.tables(config); err != nil {
			return usageError{err}
		}
		look, err := replay.Look(ctx, config, record)
		if err != nil {
			return err
		}
		for _, id := range look.Missing {
			_, _ = fmt.Fprintf(cmd.stderr, "no table has a row of id %q\n", id)
		}
		if c.DryRun {
			events.Replay = record.Name
			return cmd.dryReplay(look, events)
		}
		if err := ledger.Begin(ctx, record); err != nil {
			return err
		}
		if err := cmd.replay(ctx, ledger, config, record, c.Rate); err != nil || len(look.Missing) == 0 {
			return err
		}
		return fmt.Errorf("%d ids were not found", len(look.Missing))
	})
}

// record is the replay as it was asked for.
func (c *replayStartCommand) record(s *Settings) (*replay.Record, error) {
	r := &replay.Record{
		Name: c.Name, Selection: replay.Selection{IDs: c.ID, Since: c.Since, Until: c.Until, All: c.All},
	}
	if s.timeColumns(&r.Selection); c.Time != nil {
		r.Selection.TimeColumn, r.Selection.TimeColumns = *c.Time, nil
	}
	if r.Name == "" {
		r.Name = time.Now().UTC().Format("20060102-150405")
	}
	if r.Name == backfillName || r.Name == redriveName {
		return nil, fmt.Errorf("the name %q is walrelay's own: choose another", r.Name)
	}
	if c.IDFile != "" {
		ids, err := readIDs(c.IDFile)
		if err != nil {
			return nil, err
		}
		r.Selection.IDs = append(r.Selection.IDs, ids...)
	}
	if c.Rate < 0 {
		return nil, errors.New("--rate must not be negative")
	}
	return r, r.Selection.Validate()
}

func readIDs(name string) ([]string, error) {
	var in io.Reader = os.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read ids: %w", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	var ids []string
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if id := strings.TrimSpace(lines.Text()); id != "" {
			ids = append(ids, id)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read ids: %w", err)
	}
	return ids, nil
}

// tables names those that were asked for as mappings do; nil: all.
func (c *replayStartCommand) tables(config *cdc.Config) ([]string, error) {
	if len(c.Table) == 0 {
		return nil, nil
	}
	chosen, err := chooseTables(config, c.Table)
	var names []string
	for i := range chosen {
		names = append(names, chosen[i].Name())
	}
	return names, err
}

type replayResumeCommand struct {
	Name string `arg:"" help:"The replay."`
	Rate int    `help:"Most rows in a second; 0: no limit."`
}

// Run goes on where the replay was interrupted, in a new snapshot of the database.
func (c *replayResumeCommand) Run(ctx context.Context, cmd *command) error {
	return cmd.withReplays(ctx, func(ledger *replay.Ledger, config *cdc.Config, _ *sink.Config) error {
		record, err := ledger.Find(ctx, c.Name)
		switch {
		case err != nil:
			return err
		case record == nil:
			return fmt.Errorf("stream %s has no replay %q; `walrelay replay list` lists them", config.Stream, c.Name)
		case c.Name == backfillName:
			return errors.New("the backfill goes on when the stream is started with WALRELAY_BACKFILL=true")
		case record.State == replay.Done:
			_, err = fmt.Fprintf(cmd.stdout, "replay %s is done\n", c.Name)
			return err
		}
		return cmd.replay(ctx, ledger, config, record, c.Rate)
	})
}

type replayListCommand struct{}

// Run prints the stream's replays, the latest first.
func (replayListCommand) Run(ctx context.Context, cmd *command) error {
	return cmd.withReplays(ctx, func(ledger *replay.Ledger, _ *cdc.Config, _ *sink.Config) error {
		records, err := ledger.List(ctx)
		if err != nil {
			return err
		}
		for _, r := range records {
			_, err = fmt.Fprintf(cmd.stdout, "%-24s %-8s %9d published %6d refused  begun %s by %s, last %s\n", r.Name, r.State,
				r.Published, r.Refused, r.Started.UTC().Format(time.RFC3339), r.RequestedBy, r.Updated.UTC().Format(time.RFC3339))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// withReplays validates the settings and hands the stream's replays over.
func (c *command) withReplays(
	ctx context.Context, use func(*replay.Ledger, *cdc.Config, *sink.Config) error,
) error {
	if err := c.validate(c.database, c.brokers); err != nil {
		return err
	}
	events, err := c.settings.sinkConfig(zap.NewNop())
	if err != nil {
		return err
	}
	log, err := newLogger(c.settings, c.stderr)
	if err != nil {
		return err
	}
	config := c.settings.cdcConfig(log.WithOptions(zap.IncreaseLevel(zap.WarnLevel)), events.Topic.Columns())
	ledger, err := replay.OpenLedger(ctx, &config)
	if err != nil {
		return err
	}
	defer func() { _ = ledger.Close(context.WithoutCancel(ctx)) }()
	return use(ledger, &config, &events)
}

// dryReplay says what a replay would publish.
func (c *command) dryReplay(look *replay.Prospect, events *sink.Config) error {
	preview := sink.NewPreview(events)
	for _, t := range look.Tables {
		if _, err := fmt.Fprintf(c.stdout, "table %s: about %d rows\n", t.Name, t.Rows); err != nil {
			return err
		}
		if t.First == nil {
			continue
		}
		record := preview.Record(t.First)
		line := fmt.Sprintf("  first: id %q, topic %s, %d bytes", t.First.ID, record.Topic, record.Size)
		if record.Fault != nil {
			line = fmt.Sprintf("  first: id %q cannot be delivered: %s", t.First.ID, record.Fault)
		}
		if _, err := fmt.Fprintln(c.stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// replay carries a replay out, showing how far it is.
func (c *command) replay(
	ctx context.Context, ledger *replay.Ledger, config *cdc.Config, record *replay.Record, limit int,
) error {
	held, err := ledger.Hold(ctx, record.Name)
	if err != nil {
		return err
	}
	if !held {
		return fmt.Errorf("replay %s is being carried out by another process", record.Name)
	}
	progress := newProgress(c.stderr, "replay "+record.Name)
	err = c.withReplaySink(ctx, record.Name, config.Logger, func(ctx context.Context, kafka *sink.Kafka) error {
		return replay.Run(ctx, &replay.Config{
			CDC: config, Ledger: ledger, Sink: kafka, Rate: limit, Skip: c.settings.skips(),
			Progress: progress.show,
			Refused: func(p checkpoint.Poison) {
				progress.line(fmt.Sprintf("event %q of table %s cannot be delivered: %s; it is dead letter %s", p.EventID, p.Table,
					p.Reason, p.Position))
			},
			Trouble: func(err error) { progress.line("publishing again: " + err.Error()) },
		}, record)
	})
	progress.end()
	switch err = interrupted(ctx, err); {
	case err != nil:
		return fmt.Errorf("replay %s: %w; to go on: `walrelay replay resume %s`", record.Name, err, record.Name)
	case record.Refused > 0:
		return fmt.Errorf("replay %s: %d rows were published, %d cannot be delivered: mend the cause, and then `walrelay "+
			"deadletters redrive` publishes them", record.Name, record.Published, record.Refused)
	}
	_, err = fmt.Fprintf(c.stdout, "replay %s: %d rows were published\n", record.Name, record.Published)
	return err
}
