package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"golang.org/x/term"

	"github.com/walrelay/walrelay/cdc"
)

// confirmation asks before a gap is made.
type confirmation struct {
	Yes bool `help:"Don't ask."`
}

// ask returns nil when the operator has agreed, by --yes or by typing the slot's name on a terminal.
func (c confirmation) ask(cmd *command, slot string) error {
	if c.Yes {
		return nil
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return usageError{errors.New("nothing is done without --yes, or the slot's name typed on a terminal")}
	}
	_, _ = fmt.Fprintf(cmd.stdout, "type the name of the slot to go on: ")
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != slot {
		return errors.New("that is not the slot's name: nothing is done")
	}
	return nil
}

type slotDropCommand struct{ confirmation }

// Run drops the slot and says what is left to do.
func (c slotDropCommand) Run(ctx context.Context, cmd *command) error {
	return cmd.withSlot(ctx, func(keeper *cdc.SlotKeeper, config *cdc.Config) error {
		slot, err := keeper.Free(ctx)
		if err != nil {
			return err
		}
		consequence, err := keeper.Consequence(ctx)
		if err != nil {
			return err
		}
		cmd.stateGap(config.Slot, keeper.Gap(ctx, slot, slot.Current))
		if err := c.ask(cmd, config.Slot); err != nil {
			return err
		}
		if err := keeper.Drop(ctx, slot); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.stdout, "slot %s is dropped\n%s\n", config.Slot, consequence)
		return err
	})
}

type slotAdvanceCommand struct {
	To string `default:"current" help:"Where to, as in 16/B374D848, or current: the end of the log."`
	confirmation
}

// Run moves the slot. The operator has accepted the gap then, so the next start goes on.
func (c slotAdvanceCommand) Run(ctx context.Context, cmd *command) error {
	var to pglogrepl.LSN
	if c.To != "current" {
		var err error
		if to, err = parseLSN(c.To); err != nil {
			return usageError{err}
		}
	}
	return cmd.withSlot(ctx, func(keeper *cdc.SlotKeeper, config *cdc.Config) error {
		slot, err := keeper.Free(ctx)
		if err != nil {
			return err
		}
		if to == 0 {
			to = slot.Current
		}
		switch {
		case slot.Lost():
			return fmt.Errorf("slot %q: %s; `walrelay slot drop`", slot.Name, walStatus(slot))
		case to <= slot.ConfirmedFlush:
			return fmt.Errorf("slot %q stands at %s already, and a slot never goes back", slot.Name, slot.ConfirmedFlush)
		case to > slot.Current:
			return fmt.Errorf("%s lies beyond the end of the log at %s", to, slot.Current)
		}
		cmd.stateGap(config.Slot, keeper.Gap(ctx, slot, to))
		if err := c.ask(cmd, config.Slot); err != nil {
			return err
		}
		reached, err := keeper.Advance(ctx, to)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(cmd.stdout, "slot %s stands at %s\n"+
			"the gap counts as accepted: the next start goes on from there; what is in it is only in the outbox table\n",
			config.Slot, reached)
		if err := cmd.sayLeftOut(ctx, keeper.Registry()); err != nil {
			return err
		}
		if config.Delivery == cdc.ExactlyOnce {
			_, _ = fmt.Fprintf(cmd.stdout, "before that, since the state in Kafka ends before the gap: "+
				"walrelay stream new-epoch %s\n", config.Stream)
		}
		return nil
	})
}

// sayLeftOut prints the command that closes a gap that was made on purpose, if there is one.
func (c *command) sayLeftOut(ctx context.Context, registry *cdc.Registry) error {
	known, err := registry.Summary(ctx)
	if err != nil || known.LeftOut == nil {
		return nil //nolint:nilerr // a stream that is not registered has none
	}
	_, err = fmt.Fprintf(c.stdout, "to publish it, once the stream runs: %s\n", known.LeftOut.Replay())
	return err
}

// stateGap says what will not be streamed.
func (c *command) stateGap(slot string, gap *cdc.Gap) {
	var b strings.Builder
	fmt.Fprintf(&b, "slot %s has confirmed %s; not streamed any more: what is committed between that and %s, %s of log\n",
		slot, gap.From, gap.To, size(gap.Bytes()))
	switch {
	case !gap.Counted:
		fmt.Fprintf(&b, "events in it: not counted: %s\n", gap.Unknown)
	case gap.Events == 0:
		b.WriteString("events in it: none\n")
	default:
		fmt.Fprintf(&b, "events in it: %d, in %d transactions that were committed from %s to %s\n", gap.Events,
			gap.Transactions, gap.First.Format(time.RFC3339), gap.Last.Format(time.RFC3339))
	}
	_, _ = c.stdout.Write([]byte(b.String()))
}

// parseLSN reads PostgreSQL's notation, and nothing beside it: pglogrepl takes 0/100000000 for 1/0.
func parseLSN(text string) (pglogrepl.LSN, error) {
	lsn, err := pglogrepl.ParseLSN(text)
	if err != nil || !strings.EqualFold(lsn.String(), text) || lsn == 0 {
		return 0, fmt.Errorf("%q is no position in the log: it is written as in 16/B374D848", text)
	}
	return lsn, nil
}
