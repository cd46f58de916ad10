// Package migrations creates what is needed in a database. There are two sets: that of the relay is the
// outbox table with its publication, and the tables of the schema walrelay. That of kit is the schema
// walrelay_kit, for applications that use kit, in any of their databases: Kafka's consumers have one too,
// where no relay reads.
//
// The SQL lies in sql/ and kit/, one file for each version, with fixed names. Up and UpKit apply what is
// missing. A team that runs its own migrations, or wants other names, takes the text of Print or PrintKit
// instead; it records the versions too, so that nothing is left to do for the other way.
//
// Every file can be run again without harm, because the printed text is run as a whole after an
// upgrade, and leaves alone an outbox table or a publication that exists already.
//
// There is no way down. The tables hold events that have not reached Kafka yet and the positions, ids
// and keys that tell duplicates from new ones; dropping them is a person's decision and a person's command.
package migrations
