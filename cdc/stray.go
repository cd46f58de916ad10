package cdc

import (
	"context"
	"fmt"
	"math"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

// stray deals with a message of the events' prefix that is not transactional. It comes at once, and even if its
// transaction is rolled back, so it is never an event, and its place in the log is none to confirm: the tracker
// does not learn of it. Refused, it is recorded among the dead letters before anything behind it is confirmed;
// read again after a restart, under the same position, which no event has: that of a transaction which commits right
// behind the message has the same LSN, since a message's is its end. The stream goes on either way.
func (s *session) stray(ctx context.Context, m decoder.Message) error {
	s.warn([]string{fmt.Sprintf("messages with prefix %q that are not transactional are not published: "+
		"events need pg_logical_emit_message(true, ...)", m.Prefix)})
	if !s.cfg.RefuseStray {
		return nil
	}
	p := checkpoint.Poison{
		Position: checkpoint.Position{
			Epoch: s.epoch, Timeline: s.server.Timelines().At(m.LSN), LSN: m.LSN, Index: math.MaxUint32,
		},
		Table: (&decoder.Mapping{Prefix: m.Prefix}).Name(),
		Size:  len(m.Content),
		Reason: fmt.Sprintf("the message at %s is not transactional, so it says nothing of a commit: "+
			"emit it with pg_logical_emit_message(true, ...)", m.LSN),
		Action: checkpoint.Skipped,
	}
	// It waits, so that nothing behind is confirmed before, and a flood is no heap.
	err := s.consult(ctx, func(ctx context.Context) error {
		return s.guard.use(ctx, func(ctx context.Context) error {
			return s.guard.registry.RecordPoison(ctx, []checkpoint.Poison{p}, false)
		})
	})
	if err != nil {
		return err
	}
	s.board.update(func(st *Status) { st.Poison[p.Action]++ })
	s.log.Warn("message is refused", poisonFields(p)...)
	return nil
}
