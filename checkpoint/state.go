package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
)

// State is how far a stream has come in exactly-once delivery. It is written in the same Kafka
// transaction as the events up to it, so a consumer that sees those sees this.
type State struct {
	// Epoch is the stream's epoch when the state was written.
	Epoch uint32
	// Origin is the epoch under which this line of states began: see Line.
	Origin   uint32
	SystemID string
	Timeline uint32 // of the server's session
	Slot     string
	Routing  string // fingerprint of the rules that give an event its topic and key
	// Position is that of the last event, poison included. Zero: none since the line began.
	Position Position
	// Partial says that Position may lie in the middle of its transaction.
	Partial bool
	// Reached is the end of the last transaction that is wholly included, or a later position
	// before which the log holds no event. No LSN beyond it may be confirmed.
	Reached pglogrepl.LSN
}

// stateVersion is the lowest version that a reader of what we write must know. New fields that an
// older reader may leave out of account don't raise it, so that an upgrade can be taken back.
const stateVersion = 1

// stateDocument is a State as it is written. Unknown fields are passed over.
type stateDocument struct {
	Version  int    `json:"version"`
	Epoch    uint32 `json:"epoch"`
	Origin   uint32 `json:"origin"`
	SystemID string `json:"system_identifier"`
	Timeline uint32 `json:"timeline"`
	Slot     string `json:"slot"`
	Routing  string `json:"routing"`
	Position string `json:"position,omitempty"`
	Partial  bool   `json:"partial,omitempty"`
	Reached  string `json:"reached"`
}

// Marshal returns the state's JSON document.
func (s *State) Marshal() ([]byte, error) {
	d := stateDocument{
		Version: stateVersion, Epoch: s.Epoch, Origin: s.Origin, SystemID: s.SystemID, Timeline: s.Timeline,
		Slot: s.Slot, Routing: s.Routing, Partial: s.Partial, Reached: s.Reached.String(),
	}
	if !s.Position.IsZero() {
		d.Position = s.Position.String()
	}
	return json.Marshal(&d)
}

// ErrStateVersion is returned by ParseState for a state that a newer version of walrelay wrote in a
// way that this one would misread.
var ErrStateVersion = errors.New("a newer version of walrelay wrote it")

// ParseState reads the document that Marshal writes.
func ParseState(text []byte) (*State, error) {
	var d stateDocument
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	if d.Version > stateVersion {
		return nil, fmt.Errorf("read state of version %d: %w", d.Version, ErrStateVersion)
	}
	s := &State{
		Epoch: d.Epoch, Origin: d.Origin, SystemID: d.SystemID, Timeline: d.Timeline,
		Slot: d.Slot, Routing: d.Routing, Partial: d.Partial,
	}
	var err error
	if d.Position != "" {
		if s.Position, err = ParsePosition(d.Position); err != nil {
			return nil, fmt.Errorf("read state: %w", err)
		}
	}
	if s.Reached, err = pglogrepl.ParseLSN(d.Reached); err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	return s, nil
}

// Covers reports whether the event at p is at or before the state's position. Epochs don't count: a
// raised one renames what follows, and the log is the same.
func (s *State) Covers(p Position) bool {
	p.Epoch = s.Position.Epoch
	return !s.Position.IsZero() && p.Compare(s.Position) <= 0
}
