package decoder

import (
	"github.com/jackc/pglogrepl"

	"github.com/walrelay/walrelay/checkpoint"
)

// Config is what a Decoder needs to know. All fields but Messages and Epoch are required.
type Config struct {
	// Mappings lists the outbox tables. It is not copied: Relation.Mapping and Event.Mapping point
	// into it, and are therefore the same from one decoder to the next.
	Mappings []Mapping
	// Messages lists the prefixes of logical messages that are events, see MessageMapping and BinaryMapping.
	// Like Mappings it is not copied.
	Messages []*Mapping
	// Epoch is the stream's, for the positions of events.
	Epoch uint32
	// Timeline returns the timeline on which a commit LSN was written. It is asked once for each
	// transaction and must be a mere look-up.
	Timeline func(commit pglogrepl.LSN) uint32
}

// Decoder decodes the messages of one START_REPLICATION. The server describes each relation once in
// that time, so the next one needs a new Decoder. It is not safe for concurrent use.
type Decoder struct {
	cfg Config

	open  bool // between Begin and Commit
	begin Begin
	next  checkpoint.Position // of the transaction's next event

	relations map[uint32]*relation // by OID
	last      *relation            // the one of the last look-up: rows come in runs
	domains   map[uint32]uint32    // OIDs of domains, and of the types that they are over

	commit  Commit
	current *relation // of the last message
	event   Event
	message Message
	scratch []byte
	key     []byte // made by a template, or decoded

	envelopes []envelope // one for each prefix

	err error
}

// scratchKept bounds, in bytes, what the decoder holds on to after a large bytea payload, a large key or many headers.
const scratchKept = 1 << 20

// New returns a decoder for one START_REPLICATION.
func New(cfg Config) *Decoder {
	d := &Decoder{
		cfg: cfg, relations: make(map[uint32]*relation), domains: make(map[uint32]uint32), current: new(relation),
	}
	for _, m := range cfg.Messages {
		d.envelopes = append(d.envelopes, newEnvelope(m))
	}
	return d
}

// Decode decodes one message (what XLogData carries). The content is in the accessors that Kind
// names and stays until the next Decode; byte slices there alias wal or the decoder's scratch space.
//
// An error is an *Error. It sticks, because after a message that was not understood no later one can
// be trusted to be where it seems to be: the stream has to be started anew.
func (d *Decoder) Decode(wal []byte) (Kind, error) {
	if d.err != nil {
		return 0, d.err
	}
	r := reader{buf: wal}
	kind := d.decode(&r)
	r.finish()
	if r.err != nil {
		d.err = r.err
		return 0, d.err
	}
	return kind, nil
}

func (d *Decoder) decode(r *reader) Kind {
	switch r.byte() {
	case 'I':
		return d.decodeInsert(r)
	case 'B':
		return d.decodeBegin(r)
	case 'C':
		return d.decodeCommit(r)
	case 'R':
		return d.decodeRelation(r)
	case 'U':
		return d.decodeUpdate(r)
	case 'D':
		return d.decodeDelete(r)
	case 'T':
		return d.decodeTruncate(r)
	case 'M':
		return d.decodeMessage(r)
	case 'Y':
		return d.decodeType(r)
	case 'O':
		return decodeOrigin(r)
	case 'S', 'E', 'c', 'A', 'b', 'P', 'K', 'r', 'p':
		// Stream start, stop, commit, abort; begin prepare, prepare, commit prepared, rollback
		// prepared, stream prepare.
		r.fail(0, "belongs to protocol version 2 or later, which was not asked for")
	default:
		r.fail(0, "unknown message")
	}
	return 0
}

// InTransaction reports whether a Begin has come and its Commit has not.
func (d *Decoder) InTransaction() bool { return d.open }

// Begin returns the open transaction's Begin, or the last one's.
func (d *Decoder) Begin() Begin { return d.begin }

// Commit returns the last Commit.
func (d *Decoder) Commit() Commit { return d.commit }

// Event returns the event of the last message, reused by the next.
func (d *Decoder) Event() *Event { return &d.event }

// Relation returns the relation that the last message described or changed; logical messages have none.
func (d *Decoder) Relation() *Relation { return &d.current.Relation }

// Message returns the last logical message.
func (d *Decoder) Message() Message { return d.message }
