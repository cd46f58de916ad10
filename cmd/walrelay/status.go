package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/walrelay/walrelay/cdc"
)

type statusCommand struct {
	Once bool `help:"Print once and end, as is done without a terminal."`
	JSON bool `help:"Print one JSON document, once."`
}

// statusInterval is the time between two looks, and over which rates are taken.
const statusInterval = time.Second

// Run shows the stream from the server's side, and what an instance tells if one answers.
func (c *statusCommand) Run(ctx context.Context, cmd *command) error {
	config, err := cmd.streamConfig()
	if err != nil {
		return err
	}
	w := &watch{config: config, instance: newInstance(cmd.settings)}
	defer w.close(context.WithoutCancel(ctx))
	once := c.Once || c.JSON || !onTerminal(cmd.stdout)
	if once {
		if _, err := w.look(ctx); err != nil { // the first of two, for the rates
			return stopped(ctx, err)
		}
	}
	for {
		seen, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return stopped(ctx, ctx.Err())
		case err != nil && once:
			return err
		case err != nil:
			w.close(ctx)
			w.keeper = nil
			_, _ = fmt.Fprintf(cmd.stdout, "%s%s\n", clearScreen, err)
			err = w.rest(ctx, time.Now())
		case c.JSON:
			return json.NewEncoder(cmd.stdout).Encode(seen)
		case once:
			_, err = io.WriteString(cmd.stdout, seen.text())
			return err
		default:
			_, err = io.WriteString(cmd.stdout, clearScreen+seen.text())
		}
		if err != nil {
			return stopped(ctx, err)
		}
	}
}

// clearScreen moves the cursor home and erases: ECMA-48, CUP and ED.
const clearScreen = "\x1b[H\x1b[2J"

func onTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// watch looks at a stream again and again.
type watch struct {
	config   *cdc.Config
	instance *instance
	keeper   *cdc.SlotKeeper // nil: not connected
	last     *statusView
}

func (w *watch) close(ctx context.Context) {
	if w.keeper != nil {
		w.keeper.Close(ctx)
	}
}

// look waits for the rest of the interval, and then reads everything anew.
func (w *watch) look(ctx context.Context) (*statusView, error) {
	if w.keeper == nil {
		keeper, err := cdc.OpenSlotKeeper(ctx, w.config)
		if err != nil {
			return nil, err
		}
		w.keeper = keeper
	}
	if w.last != nil {
		if err := w.rest(ctx, w.last.Time); err != nil {
			return nil, err
		}
	}
	v := &statusView{Stream: w.config.Stream, Time: time.Now()}
	known, err := w.keeper.Registry().Summary(ctx)
	switch {
	case err == nil:
		v.register(known)
	case cdc.Fatal(err):
		v.Registry = err.Error() // not registered, or no schema: the server has more to tell
	default:
		return nil, err
	}
	slot, err := w.keeper.Report(ctx)
	if err != nil {
		return nil, err
	}
	if lag, ok, err := w.keeper.FlushLag(ctx); err != nil {
		return nil, err
	} else if ok {
		seconds := lag.Seconds()
		v.SecondsBehind = &seconds
	}
	v.slot(slot)
	v.Instance = w.instance.ask(ctx, w.config.Stream)
	v.compare(w.last)
	standbys, err := w.keeper.Standbys(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range standbys {
		v.Standbys = append(v.Standbys, holderView{PID: s.PID, Application: s.Application, Client: s.Client, Since: s.Since})
	}
	v.judge()
	w.last = v
	return v, nil
}

// rest waits until an interval has passed since then.
func (w *watch) rest(ctx context.Context, since time.Time) error {
	timer := time.NewTimer(time.Until(since.Add(statusInterval)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// lines adds a line; what it holds must not steer the terminal.
func lines(b *strings.Builder, name, format string, args ...any) {
	fmt.Fprintf(b, "%-13s %s\n", name, printable(fmt.Sprintf(format, args...)))
}
