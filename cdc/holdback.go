package cdc

import "github.com/walrelay/walrelay/decoder"

// holdback marks the events of transactions. Only the Commit tells which event was the last one, so it keeps
// one event back until the next or the Commit comes: one, whatever the transaction's size. A held event has no
// sequence and takes no room in the window, so it never waits for itself, and a session that ends forgets it:
// its transaction comes again as a whole.
type holdback struct {
	kept decoder.Kept
	size int // of the message that brought the event, in bytes
	full bool
}

// take returns the event that was held, marked, nil if there is none. The caller is done with it before it
// puts the next one.
func (h *holdback) take() *decoder.Event {
	if !h.full {
		return nil
	}
	h.full = false
	ev := h.kept.Event()
	ev.Marked = true
	return ev
}

// last is take at the transaction's Commit.
func (h *holdback) last() *decoder.Event {
	ev := h.take()
	if ev != nil {
		ev.Count = ev.Position.Index + 1
	}
	return ev
}

// put holds an event, which came in a message of size bytes.
func (h *holdback) put(ev *decoder.Event, size int) {
	h.kept.Keep(ev)
	h.size, h.full = size, true
}
