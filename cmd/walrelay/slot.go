package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/walrelay/walrelay/cdc"
)

type slotCommand struct {
	Show    slotShowCommand    `cmd:"" help:"Show everything that the server says of the slot, and what it costs."`
	Create  slotCreateCommand  `cmd:"" help:"Register the stream and create publication and slot, as the first run does."`
	Drop    slotDropCommand    `cmd:"" help:"Drop the slot, after stating the gap and asking."`
	Advance slotAdvanceCommand `cmd:"" help:"Move the slot forward without streaming, after stating the gap and asking."`
}

// streamConfig validates the settings and returns the configuration of the stream.
func (c *command) streamConfig() (*cdc.Config, error) {
	if err := c.validate(c.database); err != nil {
		return nil, err
	}
	log, err := newLogger(c.settings, c.stderr)
	if err != nil {
		return nil, err
	}
	template, err := c.settings.template()
	if err != nil {
		return nil, err
	}
	config := c.settings.cdcConfig(log, template.Columns())
	return &config, nil
}

// withSlot validates the settings and hands the keeper of the configured slot over.
func (c *command) withSlot(ctx context.Context, use func(*cdc.SlotKeeper, *cdc.Config) error) error {
	config, err := c.streamConfig()
	if err != nil {
		return err
	}
	keeper, err := cdc.OpenSlotKeeper(ctx, config)
	if err != nil {
		return err
	}
	defer keeper.Close(context.WithoutCancel(ctx))
	return use(keeper, config)
}

type slotCreateCommand struct{}

// Run does what the first start of run does before it streams.
func (slotCreateCommand) Run(ctx context.Context, cmd *command) error {
	config, err := cmd.streamConfig()
	if err != nil {
		return err
	}
	server, err := cdc.Dial(ctx, config)
	if err != nil {
		return err
	}
	defer server.Close(context.WithoutCancel(ctx))
	warnings, err := server.Preflight(ctx)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		config.Logger.Warn(w)
	}
	slot, err := server.Slot(ctx)
	if err != nil {
		return err
	}
	if slot.Exists {
		return fmt.Errorf("slot %q exists: `walrelay slot show` shows it, `walrelay run` goes on from it", slot.Name)
	}
	if err := accept(ctx, server.Registry()); err != nil {
		return err
	}
	made, err := server.Register(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.stdout, "stream %s is registered, epoch %d\n"+
		"slot %s is created, consistent from %s: transactions that commit after it are streamed, "+
		"rows that are there are not\n"+
		"the server keeps the write-ahead log from now on; next: walrelay run\n",
		config.Stream, made.Epoch, config.Slot, made.Created)
	if err != nil {
		return err
	}
	return cmd.sayLeftOut(ctx, server.Registry())
}

// accept takes the command for the operator's word that a slot which was dropped by `walrelay slot drop` shall be
// there again, under a new epoch.
func accept(ctx context.Context, registry *cdc.Registry) error {
	known, err := registry.Summary(ctx)
	if cdc.Fatal(err) {
		return nil // not registered: there is nothing to accept
	}
	if err != nil || known.LeftOut == nil || !known.LeftOut.Dropped() {
		return err
	}
	_, err = registry.NewEpoch(ctx)
	return err
}

type slotShowCommand struct{}

// Run prints pg_replication_slots in words.
func (slotShowCommand) Run(ctx context.Context, cmd *command) error {
	return cmd.withSlot(ctx, func(keeper *cdc.SlotKeeper, _ *cdc.Config) error {
		slot, err := keeper.Report(ctx)
		if err != nil {
			return err
		}
		if !slot.Exists {
			return fmt.Errorf("slot %q does not exist; `walrelay slot create` makes it", slot.Name)
		}
		_, err = io.WriteString(cmd.stdout, slotInWords(slot))
		return err
	})
}

func slotInWords(slot *cdc.SlotReport) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-16s %s\n", name, fmt.Sprintf(format, args...))
	}
	kind := "physical"
	if slot.Logical {
		kind = fmt.Sprintf("logical, %s, of database %s", slot.Plugin, slot.Database)
	}
	if slot.Temporary {
		kind += ", temporary"
	}
	if slot.TwoPhase {
		kind += ", two-phase"
	}
	line("slot", "%s: %s", slot.Name, kind)
	line("use", "%s", slotUse(slot))
	line("confirmed", "%s, %s before the end of the log at %s", slot.ConfirmedFlush,
		size(slot.ConfirmedBytes()), slot.Current)
	line("retained", "%s of write-ahead log on the server's disk, from %s", size(slot.RetainedBytes()), slot.Restart)
	line("state", "%s", walStatus(slot))
	switch {
	case slot.SafeWALSize != nil:
		line("limit", "max_slot_wal_keep_size = %s: the slot may be lost when %s more are written", slot.KeepSize,
			size(max(0, *slot.SafeWALSize)))
	case !slot.Lost():
		line("limit", "none (max_slot_wal_keep_size = %s): a slot that nobody reads can fill the disk", slot.KeepSize)
	}
	line("catalogs", "dead rows of the system catalogs are kept for %d transactions", slot.CatalogXminAge)
	switch {
	case slot.Synced:
		line("failover", "this is a standby's copy")
	case slot.Failover:
		line("failover", "copied to standbys")
	default:
		line("failover", "not copied to standbys")
	}
	return b.String()
}

func slotUse(slot *cdc.SlotReport) string {
	switch {
	case slot.Holder != nil:
		return "read by " + slot.Holder.String()
	case !slot.Inactive.IsZero():
		return fmt.Sprintf("nobody reads it, since %s (%s)", slot.Inactive.UTC().Format(time.RFC3339),
			slot.ServerTime.Sub(slot.Inactive).Round(time.Second))
	default:
		return "nobody reads it (PostgreSQL 17 and later say since when)"
	}
}

// walStatus explains wal_status: https://www.postgresql.org/docs/current/view-pg-replication-slots.html
func walStatus(slot *cdc.SlotReport) string {
	switch {
	case slot.InvalidationReason != "":
		return "lost: " + slot.InvalidationReason + "; it will never be read again"
	case slot.WALStatus == "lost":
		return "lost: log that it needs was removed; it will never be read again"
	case slot.WALStatus == "unreserved":
		return "unreserved: about to be lost, unless it is read before the next checkpoint"
	case slot.WALStatus == "extended":
		return "extended: more than max_wal_size is kept, on its account or another's"
	default:
		return slot.WALStatus + ": all is there"
	}
}

// size is a number of bytes for people, and exactly.
func size(bytes int64) string {
	if short := amount(bytes); !strings.HasSuffix(short, " bytes") {
		return fmt.Sprintf("%s (%d bytes)", short, bytes)
	}
	return amount(bytes)
}

// amount is a number of bytes for people.
func amount(bytes int64) string {
	const unit = 1 << 10
	if bytes < unit {
		return fmt.Sprintf("%d bytes", bytes)
	}
	value, name := float64(bytes), ""
	for _, name = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value /= unit; value < unit {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", value, name)
}
