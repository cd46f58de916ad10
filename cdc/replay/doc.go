// Package replay publishes rows of outbox tables again, beside the stream and without disturbing it:
// the operator's repair after a gap, and the backfill before a stream begins.
//
//	Selection ──► rows of one snapshot, read as text ──► decoder.Rows ──► Publisher ──► cdc.Sink
//	                                                                          │
//	                                  walrelay.replays  ◄── how far it came ◄─┘ acknowledged, in order
//
// The sink is one of a replay (sink.Config.Replay): records have the same id, key, value and headers
// as the stream's, and the replay's name in place of a position. Consumers drop by id what they have
// seen. Rows come in the order of the time column, and of their insertion within one time; without a
// time column in the order of their ids.
package replay
