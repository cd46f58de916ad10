package judge

import "github.com/twmb/franz-go/pkg/kgo"

// Form is what records look like. Its zero value is that of a stream without any settings for it.
type Form struct {
	// Read finds in a record what was committed, or says why that cannot be found. Nil: the header id, and topic,
	// key and value as they are.
	Read func(*kgo.Record) (Event, error)
	// Transactions says that records tell their place in their transaction. A transaction is what was committed to
	// the ledger by one call.
	Transactions bool
}

func (f *Form) read(r *kgo.Record) (Event, error) {
	if f.Read == nil {
		return Event{ID: Header(r, "id"), Topic: r.Topic, Key: r.Key, Value: r.Value}, nil
	}
	return f.Read(r)
}
