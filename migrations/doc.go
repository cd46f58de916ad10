// Package migrations creates what walrelay needs in a database: the outbox table with its
// publication, and the tables of the schema walrelay.
//
// The SQL lies in sql/, one file for each version, with fixed names. Up applies what is missing.
// A team that runs its own migrations, or wants other names, takes the text of Print instead; it
// records the versions too, so that Up and Status find nothing left to do.
//
// Every file can be run again without harm, because Print's text is run as a whole after an
// upgrade, and leaves alone an outbox table or a publication that exists already.
//
// There is no way down. The tables hold events that have not reached Kafka yet and the positions
// that tell duplicates from new events; dropping them is a person's decision and a person's command.
package migrations
