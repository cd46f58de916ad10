package decoder

import "github.com/jackc/pglogrepl"

// Message is a logical message, as pg_logical_emit_message writes it.
type Message struct {
	LSN pglogrepl.LSN
	// Transactional messages come between Begin and Commit; others at once, even if their
	// transaction is rolled back.
	Transactional bool
	Prefix        string
	// Content aliases the decoder's input.
	Content []byte
}

func (d *Decoder) decodeMessage(r *reader) Kind {
	flags := r.byte()
	if flags > 1 {
		r.fail(1, "unknown flags")
	}
	d.message = Message{
		LSN:           pglogrepl.LSN(r.uint64()),
		Transactional: flags == 1,
		Prefix:        r.stringLike(d.message.Prefix),
		Content:       r.value(),
	}
	if d.message.Transactional && !d.inside(r) {
		return 0
	}
	e := d.envelope(d.message.Prefix)
	switch {
	case e == nil:
		return KindMessage
	case !d.message.Transactional:
		// It may belong to a transaction that was rolled back, and has no place in any.
		return KindStrayMessage
	case r.err != nil || !d.newEvent(r, e.mapping, e.route):
		return 0
	}
	d.mapEnvelope(e, d.message.Content)
	return KindEvent
}

// envelope returns that of the prefix, nil if such messages are no events.
func (d *Decoder) envelope(prefix string) *envelope {
	for i := range d.envelopes {
		if e := &d.envelopes[i]; e.mapping.Prefix == prefix {
			return e
		}
	}
	return nil
}

// decodeOrigin reads where a replicated transaction came from. Every origin is streamed alike.
func decodeOrigin(r *reader) Kind {
	r.uint64() // commit LSN on the origin
	r.string() // name
	return KindOrigin
}
