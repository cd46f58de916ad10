package main

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/cdc/retention"
)

type partitionsCommand struct {
	Create partitionsCreateCommand `cmd:"" help:"Make the partitions of outbox tables that are missing from now on."`
}

//nolint:lll // a struct tag cannot be broken over lines
type partitionsCreateCommand struct {
	Every string        `default:"day" enum:"hour,day,week,month" help:"Length of a partition, in UTC: ${enum}."`
	Ahead time.Duration `default:"168h" help:"Time from now on that partitions shall cover."`
	Table []string      `sep:"none" help:"Only this table, as in WALRELAY_TABLES; may be repeated. Without it, all must be partitioned by ranges of WALRELAY_RETENTION_COLUMN, or of their own in WALRELAY_TABLE_COLUMNS."`
}

// lockPause is the time between two attempts to lock a table.
const lockPause = time.Second

// Run makes the partitions, says which, and is safe to run at any time, several at once.
func (c *partitionsCreateCommand) Run(ctx context.Context, cmd *command) error {
	if c.Ahead < 0 || c.Ahead > maxAhead {
		return usageError{fmt.Errorf("--ahead must be from 0s to %s", maxAhead)}
	}
	if err := cmd.validate(cmd.database); err != nil {
		return err
	}
	config := cmd.settings.cdcConfig(zap.NewNop(), nil)
	tables, err := chooseTables(&config, c.Table)
	if err != nil {
		return usageError{err}
	}
	db, err := cdc.Connect(ctx, &config)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	for i := range tables {
		ahead := retention.Ahead{
			Column: cmd.settings.timeColumn(&tables[i]), Every: retention.Every(c.Every), For: c.Ahead, Pause: lockPause,
		}
		made, err := ahead.Make(ctx, db, &tables[i])
		for _, p := range made {
			_, _ = fmt.Fprintf(cmd.stdout, "created %s %s\n", p.Name, p)
		}
		if err != nil {
			return err
		}
		if len(made) == 0 {
			_, _ = fmt.Fprintf(cmd.stdout, "nothing to create for %s\n", tables[i].Name())
		}
	}
	return nil
}

// maxAhead keeps a slip of the pen from making partitions for a century.
const maxAhead = 5 * 366 * 24 * time.Hour
