package cdc

import (
	"fmt"

	"go.uber.org/zap"
)

// UpdatePolicy says what becomes of an update of an outbox table, which is never an event.
type UpdatePolicy string

// The policies. Empty is IgnoreUpdates.
const (
	IgnoreUpdates UpdatePolicy = "ignore" // counted only
	WarnOfUpdates UpdatePolicy = "warn"   // logged as a warning, each
	ErrorOfUpdate UpdatePolicy = "error"  // logged as an error, each
	FatalUpdates  UpdatePolicy = "fatal"  // the stream ends
)

// updated applies the policy to an update, unless its table is no outbox.
func (s *session) updated() error {
	rel := s.decoder.Relation()
	if rel.Mapping == nil {
		return nil
	}
	table := zap.String("table", rel.Mapping.Name())
	switch s.cfg.OnUpdate {
	case WarnOfUpdates:
		s.log.Warn("an update of an outbox table is not published", table)
	case ErrorOfUpdate:
		s.log.Error("an update of an outbox table is not published", table)
	case FatalUpdates:
		return &FatalError{
			Object: "table " + rel.Mapping.Name(), Problem: fmt.Sprintf("has an update in the log near %s", s.received),
			Remedy: "set WALRELAY_ON_UPDATE=warn until it has passed, and let the application insert only",
		}
	default:
	}
	return nil
}
