package main

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/cdc/replay"
	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/sink"
)

// redriveName is the name that redriven events carry in the header walrelay-replay.
const redriveName = "dead-letters"

type lettersRedriveCommand struct {
	Position []string `arg:"" optional:"" help:"Positions of letters, as list prints them."`

	All         bool   `help:"Every letter that was not redriven, but for skipped ones."`
	MeantFor    string `placeholder:"TOPIC" help:"Those that were meant for this topic."`
	Reason      string `placeholder:"TEXT" help:"Those whose reason has this text in it."`
	Skipped     bool   `help:"Skipped events too, which otherwise are only redriven by their position."`
	To          string `placeholder:"TOPIC" help:"Publish to this topic instead of the one that the event was meant for."`
	ReleaseKeys bool   `help:"Later events of a key go to their topic again once no letter of it is left."`
	DryRun      bool   `help:"Say what would be published, and publish nothing."`
}

// Help is what --help says beyond the first line.
func (*lettersRedriveCommand) Help() string {
	return "Reads the event from the dead-letter topic, or else from its row in the outbox table, and publishes it " +
		"under its own id, with the header walrelay-replay in place of a position; consumers drop by id what they have. " +
		"Oldest first; when one cannot be delivered, later ones of its key stay as well. Interrupted, it may be repeated. " +
		"Exit code: 0 when all were redriven, 1 when any was not, 2 for a wrong usage."
}

// Run publishes the chosen letters.
func (c *lettersRedriveCommand) Run(ctx context.Context, cmd *command) error {
	if err := cmd.validate(cmd.database, cmd.brokers); err != nil {
		return err
	}
	choose, err := c.choice()
	if err == nil {
		err = c.checkTo(cmd.settings)
	}
	if err != nil {
		return usageError{err}
	}
	log, err := newLogger(cmd.settings, cmd.stderr)
	if err != nil {
		return err
	}
	log = log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))
	config, err := cmd.settings.redriveConfig(log)
	if err != nil {
		return err
	}
	return cmd.withRegistry(ctx, "", func(registry *cdc.Registry, _ *cdc.Config) error {
		held, err := registry.HoldLetters(ctx)
		if err != nil {
			return err
		}
		if !held {
			return errors.New("dead letters of this stream are being redriven by another process")
		}
		defer func() { _ = registry.FreeLetters(context.WithoutCancel(ctx)) }()
		letters, err := registry.Letters(ctx, true)
		if err != nil {
			return err
		}
		chosen, err := choose(letters)
		if err != nil {
			return err
		}
		source, err := cmd.openLetterSource(ctx, log, &config, chosen)
		if err != nil {
			return err
		}
		defer source.close(context.WithoutCancel(ctx))
		r := &redrive{cmd: cmd, to: c.To, registry: registry, source: source}
		if c.DryRun {
			return r.preview(ctx, sink.NewPreview(&config), chosen)
		}
		if err := r.publish(ctx, config, chosen); err != nil {
			return err
		}
		if c.ReleaseKeys {
			return errors.Join(r.verdict(), r.releaseKeys(ctx))
		}
		return r.verdict()
	})
}

// redrive publishes letters in rounds, with one letter of each key at most, so that none overtakes an
// earlier one of its key that turns out to be refused.
type redrive struct {
	cmd      *command
	to       string // topic; empty: the one that the event was meant for
	registry *cdc.Registry
	source   *letterSource

	waiting []cdc.Letter       // handed to the publisher, in order
	refused map[letterKey]bool // keys of which a letter stays
	done    int
	left    int
	failed  error // what kept a redriven letter from being recorded
}

// letterKey is what has an order of its own.
type letterKey struct{ topic, digest string }

func (r *redrive) publish(ctx context.Context, config sink.Config, chosen []cdc.Letter) error {
	kafka, err := sink.New(config)
	if err != nil {
		return fmt.Errorf("configure the sink: %w", err)
	}
	r.refused = map[letterKey]bool{}
	return runSink(ctx, kafka, func(ctx context.Context, kafka *sink.Kafka) error {
		publisher := replay.NewPublisher(kafka, r.cmd.settings.window(), func(_ *decoder.Event, p *checkpoint.Poison) {
			r.settled(ctx, p)
		}, func(err error) { _, _ = fmt.Fprintln(r.cmd.stderr, "publishing again:", err) })
		for queues := queued(chosen); len(queues) > 0; {
			rest := queues[:0]
			for _, queue := range queues {
				if err := r.next(ctx, publisher, &queue[0]); err != nil {
					return err
				}
				if len(queue) > 1 {
					rest = append(rest, queue[1:])
				}
			}
			if err := publisher.Drain(ctx); err != nil {
				return err
			}
			if r.failed != nil {
				return r.failed
			}
			queues = rest
		}
		return nil
	})
}

// queued gives each key a queue of its own, and each letter without one.
func queued(letters []cdc.Letter) (queues [][]cdc.Letter) {
	at := map[letterKey]int{}
	for _, l := range letters {
		key := letterKey{l.Topic, string(l.KeyDigest)}
		if i, known := at[key]; known && l.KeyDigest != nil {
			queues[i] = append(queues[i], l)
			continue
		}
		at[key] = len(queues)
		queues = append(queues, []cdc.Letter{l})
	}
	return queues
}

// next hands a letter to the publisher, unless it stays.
func (r *redrive) next(ctx context.Context, publisher *replay.Publisher, l *cdc.Letter) error {
	if l.KeyDigest != nil && r.refused[letterKey{l.Topic, string(l.KeyDigest)}] {
		r.stays(l, "an earlier one of its key stays")
		return nil
	}
	ev, _, err := r.event(ctx, l)
	if reason, ok := errors.AsType[staysError](err); ok {
		r.stays(l, string(reason))
		return nil
	}
	if err != nil {
		return err
	}
	r.waiting = append(r.waiting, *l)
	return publisher.Publish(ctx, ev)
}

// event is the letter's, routed.
func (r *redrive) event(ctx context.Context, l *cdc.Letter) (ev *decoder.Event, from string, err error) {
	topic := l.Topic
	if r.to != "" {
		topic = r.to
	}
	if topic == "" {
		return nil, "", staysError("no topic could be derived for it; name one with --to")
	}
	if ev, from, err = r.source.read(ctx, l); err != nil {
		return nil, "", err
	}
	to := *ev.Mapping
	if to.Topic, err = decoder.ParseTemplate(topic); err != nil { // the name itself: it has no braces
		return nil, "", fmt.Errorf("topic of the letter at %s: %w", l.Position, err)
	}
	ev.Mapping = &to
	return ev, from, nil
}

// settled is told of the letters in waiting, in their order.
func (r *redrive) settled(ctx context.Context, refused *checkpoint.Poison) {
	l := r.waiting[0]
	r.waiting = r.waiting[1:]
	if refused != nil {
		r.stays(&l, refused.Reason)
		return
	}
	if r.failed == nil {
		r.failed = r.registry.RecordRedriven(ctx, l.Position)
	}
	if r.failed == nil {
		r.done++
		_, _ = fmt.Fprintf(r.cmd.stdout, "%s  %q redriven\n", l.Position, l.EventID)
	}
}

func (r *redrive) stays(l *cdc.Letter, reason string) {
	r.left++
	if r.refused != nil {
		r.refused[letterKey{l.Topic, string(l.KeyDigest)}] = true
	}
	_, _ = fmt.Fprintf(r.cmd.stdout, "%s  %q stays: %s\n", l.Position, l.EventID, reason)
}

// verdict is the error of a command that could not do everything.
func (r *redrive) verdict() error {
	if r.left > 0 {
		return fmt.Errorf("%d events were redriven, %d stay", r.done, r.left)
	}
	_, err := fmt.Fprintf(r.cmd.stdout, "%d events were redriven\n", r.done)
	return err
}

// preview says what would be published, and what could not.
func (r *redrive) preview(ctx context.Context, preview *sink.Preview, chosen []cdc.Letter) error {
	for i := range chosen {
		l := &chosen[i]
		ev, from, err := r.event(ctx, l)
		if reason, ok := errors.AsType[staysError](err); ok {
			r.stays(l, string(reason))
			continue
		}
		if err != nil {
			return err
		}
		if record := preview.Record(ev); record.Fault != nil {
			r.stays(l, record.Fault.Error())
		} else {
			_, _ = fmt.Fprintf(r.cmd.stdout, "%s  %q to %s, from %s\n", l.Position, l.EventID, record.Topic, from)
		}
	}
	if r.left > 0 {
		return fmt.Errorf("%d events would stay", r.left)
	}
	return nil
}

func (r *redrive) releaseKeys(ctx context.Context) error {
	keys, err := r.registry.ReleaseKeys(ctx)
	if err == nil {
		_, err = fmt.Fprintf(r.cmd.stdout, "%d keys are released; the stream knows at its next start\n", keys)
	}
	return err
}
