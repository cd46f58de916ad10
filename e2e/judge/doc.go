// Package judge decides whether what is in Kafka is what was committed to PostgreSQL: nothing lost,
// nothing invented, nothing in another order. It reads with an independent client and knows nothing of
// walrelay but the headers that consumers are told to rely on: id, walrelay-stream, walrelay-position, and
// where they are expected walrelay-transaction-*.
//
//	ledger := judge.NewLedger()
//	err := ledger.Commit(events...)                      // by the writers, each after its COMMIT
//	verdict, err := judge.Topics(ctx, source, ledger)    // once everything has settled
//	err = verdict.Err()                                  // nil, or what is wrong
//
// A key has one writer, so that the order of its events is known without asking the server. Events
// without a key are judged by their positions alone.
//
// Topics expects one stream in a partition. Where several write, Streams judges each by its own ledger.
//
// The memory of the ledger and the judge is about 100 bytes an event, whatever the size of its value.
//
//	ledger.go     what was committed
//	position.go   the header by whose order consumers drop repetitions
//	judge.go      looks at one record after the other
//	form.go       what records look like, where they are not just key and value
//	markers.go    puts transactions together again
//	verdict.go    what was found
//	topics.go     reads whole topics
package judge
