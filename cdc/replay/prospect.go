package replay

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/decoder"
)

// Prospect is what a replay would publish.
type Prospect struct {
	Tables []TableProspect
	// Missing lists the ids that no table has.
	Missing []string
}

// TableProspect is a table's part of it.
type TableProspect struct {
	Name  string // as Mapping.Name has it
	Rows  int64  // the planner's estimate
	First *decoder.Event
}

// Look finds out what a replay would publish, and publishes nothing.
func Look(ctx context.Context, cfg *cdc.Config, r *Record) (*Prospect, error) {
	db, err := snapshot(ctx, &Config{CDC: cfg})
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	look := &Prospect{Missing: r.Selection.IDs}
	for i := range cfg.Mappings {
		m := &cfg.Mappings[i]
		if r.Tables != nil && !slices.Contains(r.Tables, m.Name()) {
			continue
		}
		t, err := describe(ctx, db, m, &r.Selection)
		if err != nil {
			return nil, err
		}
		found, err := t.look(ctx, db, &r.Selection)
		if err != nil {
			return nil, err
		}
		look.Tables = append(look.Tables, *found)
		if len(r.Selection.IDs) > 0 {
			present, err := t.present(ctx, db, r.Selection.IDs)
			if err != nil {
				return nil, err
			}
			look.Missing = slices.DeleteFunc(slices.Clone(look.Missing), func(id string) bool {
				return slices.Contains(present, id)
			})
		}
	}
	return look, nil
}

func (t *table) look(ctx context.Context, db *pgx.Conn, s *Selection) (*TableProspect, error) {
	p := &TableProspect{Name: t.mapping.Name()}
	var err error
	if p.Rows, err = t.estimate(ctx, db, s, ""); err != nil {
		return nil, err
	}
	p.First, err = t.first(ctx, db, s)
	return p, err
}
