package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

// lockID is the key of the advisory lock that Up holds: "walrelay" in ASCII (0x77616C72656C6179).
// Advisory locks belong to one database, so instances for other databases don't wait.
const lockID int64 = 8602276001838031225

// State says of one migration whether it was applied.
type State struct {
	Version int64
	Name    string // as in 00001_outbox
	// AppliedAt is the time on the server's clock; zero while the migration is pending.
	AppliedAt time.Time
}

// Pending reports that the migration was not applied yet.
func (s State) Pending() bool { return s.AppliedAt.IsZero() }

func (s set) up(ctx context.Context, db *sql.DB) (applied []string, err error) {
	states, err := s.status(ctx, db)
	if err != nil {
		return nil, err
	}
	if !anyPending(states) {
		return nil, nil
	}
	provider, err := s.newProvider(db)
	if err != nil {
		return nil, err
	}
	results, err := provider.Up(ctx)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		results = partial.Applied
	}
	for _, r := range results {
		applied = append(applied, name(r.Source.Path))
	}
	if err != nil {
		return applied, fmt.Errorf("apply migrations: %w", err)
	}
	return applied, nil
}

func (s set) status(ctx context.Context, db *sql.DB) ([]State, error) {
	provider, err := s.newProvider(db)
	if err != nil {
		return nil, err
	}
	appliedAt, err := s.readVersions(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("read applied migrations: %w", err)
	}
	var states []State
	for _, source := range provider.ListSources() {
		states = append(states, State{
			Version: source.Version, Name: name(source.Path), AppliedAt: appliedAt[source.Version],
		})
	}
	return states, nil
}

func anyPending(states []State) bool {
	for _, s := range states {
		if s.Pending() {
			return true
		}
	}
	return false
}

func (s set) newProvider(db *sql.DB) (*goose.Provider, error) {
	store, err := database.NewStoreFromQuerier(s.versionTable(), versionQueries{s})
	if err != nil {
		return nil, fmt.Errorf("prepare version table: %w", err)
	}
	// It asks every second, without keeping a statement open while it waits: an open one holds back
	// vacuum, and a later migration that builds an index concurrently would wait for it for ever.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockID), lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, fmt.Errorf("prepare migration lock: %w", err)
	}
	dir, err := fs.Sub(files, s.dir)
	if err != nil {
		return nil, fmt.Errorf("open migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, dir,
		goose.WithStore(store),
		goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true), // an embedding program's own goose migrations are not ours
	)
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	return provider, nil
}

func name(file string) string { return strings.TrimSuffix(path.Base(file), ".sql") }
