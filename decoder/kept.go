package decoder

// Kept is a copy of an event that outlives the next Decode. The zero value is ready; its memory is used again
// by the next Keep. It is not safe for concurrent use.
type Kept struct {
	event Event
	route [][]byte
	extra [][]byte
	bytes []byte
}

// keptMemory bounds, in bytes, what a Kept holds on to after a large event.
const keptMemory = 1 << 20

// Keep copies ev and what it aliases, in place of what was kept before.
func (k *Kept) Keep(ev *Event) {
	n := 0
	for s := range slotRoute {
		n += len(*ev.at(s))
	}
	for _, b := range ev.Route {
		n += len(b)
	}
	for _, b := range ev.Extra {
		n += len(b)
	}
	if k.bytes == nil || cap(k.bytes) < n || cap(k.bytes) > keptMemory {
		k.bytes = make([]byte, 0, max(n, 1))
	}
	k.bytes = k.bytes[:0]
	k.event = *ev
	for s := range slotRoute {
		field := k.event.at(s)
		*field = k.copy(*field)
	}
	k.route = k.route[:0]
	for _, b := range ev.Route {
		k.route = append(k.route, k.copy(b))
	}
	k.event.Route = k.route
	k.extra = k.extra[:0]
	for _, b := range ev.Extra {
		k.extra = append(k.extra, k.copy(b))
	}
	k.event.Extra = k.extra
}

// Event is what was kept last, valid until the next Keep.
func (k *Kept) Event() *Event { return &k.event }

// Size is how many bytes the event's fields take.
func (k *Kept) Size() int { return len(k.bytes) }

func (k *Kept) copy(b []byte) []byte {
	if b == nil {
		return nil
	}
	from := len(k.bytes)
	k.bytes = append(k.bytes, b...)
	return k.bytes[from:len(k.bytes):len(k.bytes)]
}
