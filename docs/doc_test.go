// Package docs_test runs the documentation: a section of a page is a script, from its top to its bottom, for a
// fresh database and real servers.
//
// What is run, in the order of the text: blocks of sh and sql, and what stands in `code` and begins like a command
// (walrelay …, make …, kafka-….sh …, SELECT …). Each section has an environment of its own (see world): walrelay
// is on PATH and configured, its stream has run once and is stopped. Whatever a section needs beside that is in
// sections, by page and anchor. What cannot be run is in exceptions, with the reason. Blocks of go, java and python
// are excerpts: their lines are in a file of this repository that other tests run.
package docs_test
