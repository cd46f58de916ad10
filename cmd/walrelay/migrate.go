package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/walrelay/walrelay/migrations"
)

type migrateCommand struct {
	Up     migrateUpCommand     `cmd:"" default:"1" help:"Apply what is missing."`
	Status migrateStatusCommand `cmd:"" help:"Say what is applied and what is missing."`
	Print  migratePrintCommand  `cmd:"" help:"Print the SQL, for those who apply it themselves."`
}

// migrationSet chooses between the relay's tables and those of kit.
type migrationSet struct {
	Kit bool `help:"The tables of kit, which applications import, in place of walrelay's own."`
}

type migrateUpCommand struct{ migrationSet }

// Run applies the missing migrations.
func (c migrateUpCommand) Run(ctx context.Context, cmd *command) error {
	db, err := cmd.openDatabase()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	up := migrations.Up
	if c.Kit {
		up = migrations.UpKit
	}
	applied, err := up(ctx, db)
	for _, name := range applied {
		_, _ = fmt.Fprintln(cmd.stdout, "applied", name)
	}
	if err != nil {
		return err
	}
	if len(applied) == 0 {
		_, _ = fmt.Fprintln(cmd.stdout, "nothing to apply")
	}
	return nil
}

type migrateStatusCommand struct{ migrationSet }

// Run prints one line for each migration.
func (c migrateStatusCommand) Run(ctx context.Context, cmd *command) error {
	db, err := cmd.openDatabase()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	status := migrations.Status
	if c.Kit {
		status = migrations.StatusKit
	}
	states, err := status(ctx, db)
	if err != nil {
		return err
	}
	for _, state := range states {
		applied := "pending"
		if !state.Pending() {
			applied = state.AppliedAt.UTC().Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(cmd.stdout, "%s\t%s\n", state.Name, applied)
	}
	return nil
}

type migratePrintCommand struct{ migrationSet }

// Run needs no database.
func (c migratePrintCommand) Run(cmd *command) error {
	if c.Kit {
		return migrations.PrintKit(cmd.stdout)
	}
	return migrations.Print(cmd.stdout)
}

// openDatabase validates the settings and returns a pool that connects at its first use.
func (c *command) openDatabase() (*sql.DB, error) {
	if err := c.validate(c.database); err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(c.settings.DatabaseURL.Reveal())
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %s", c.settings.DatabaseURL.variable, databaseRule("", err))}
	}
	return stdlib.OpenDB(*config), nil
}
