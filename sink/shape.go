package sink

import (
	"fmt"
	"math"
	"strconv"

	"github.com/walrelay/walrelay/sink/connect"
)

// Shape says what records are made of, as Debezium's outbox event router and the converters of Kafka Connect behind it
// do. Its zero value changes nothing.
type Shape struct {
	Key, Value Format
	// Expand makes JSON of a payload that is text. Nil: it stays a string. It means nothing to Raw.
	Expand *connect.Expansion
	// Tombstones makes a null value of a payload that is NULL or blank.
	Tombstones bool
	// Additional are the places of Mapping.Extra, in its order. Any column in the envelope makes one of the value,
	// which must not be Raw then.
	Additional []Placement
	// SchemaPrefix is the first part of the names that envelopes have in schemas.
	SchemaPrefix string
}

// Format is how a key or a payload is written.
type Format uint8

// The formats.
const (
	Raw        Format = iota // the column's bytes
	JSON                     // JsonConverter, schemas.enable=false
	JSONSchema               // JsonConverter, schemas.enable=true: {"schema": …, "payload": …}
)

// Placement is where the value of an additional column goes.
type Placement struct {
	Place Place
	Name  string // of the header, or of the envelope's member
}

// Place is a part of a record.
type Place uint8

// The places.
const (
	InHeader Place = iota
	InEnvelope
	AsPartition
)

// Validate says what cannot be.
func (s *Shape) Validate() error {
	if s.Value == Raw && s.enveloped() {
		return fmt.Errorf("sink: columns in the envelope need a value format of JSON")
	}
	for _, p := range s.Additional {
		if p.Place == InHeader && p.Name != headerType && reserved(p.Name) {
			return fmt.Errorf("sink: walrelay sets the header %s itself", p.Name)
		}
	}
	return nil
}

func (s *Shape) enveloped() bool {
	for _, p := range s.Additional {
		if p.Place == InEnvelope {
			return true
		}
	}
	return false
}

// parsePartition reads the number of a partition.
func parsePartition(text []byte) (int32, error) {
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil || n < 0 || n == math.MaxInt32 {
		return 0, fmt.Errorf("is no number of a partition")
	}
	return int32(n), nil
}
