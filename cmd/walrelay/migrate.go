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

type migrateUpCommand struct{}

// Run applies the missing migrations.
func (migrateUpCommand) Run(ctx context.Context, cmd *command) error {
	db, err := cmd.openDatabase()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	applied, err := migrations.Up(ctx, db)
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

type migrateStatusCommand struct{}

// Run prints one line for each migration.
func (migrateStatusCommand) Run(ctx context.Context, cmd *command) error {
	db, err := cmd.openDatabase()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	states, err := migrations.Status(ctx, db)
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

type migratePrintCommand struct{}

// Run needs no database.
func (migratePrintCommand) Run(cmd *command) error { return migrations.Print(cmd.stdout) }

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
