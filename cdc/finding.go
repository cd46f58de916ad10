package cdc

// Level says how a check of Examine came out.
type Level string

// The levels of a Finding.
const (
	LevelOK      Level = "ok"
	LevelWarning Level = "warning" // the stream runs, but something else may go wrong
	LevelFault   Level = "fault"   // the stream cannot run, misses rows, or hurts the database's users
	LevelUnknown Level = "unknown" // it could not be looked at: Found says why
)

// Finding is what one check found. No part of it holds a secret, a payload or a key.
type Finding struct {
	// Check is the check's id: kebab-case, the same in every version.
	Check string
	// Object is what was looked at: the server, a slot, a table.
	Object string
	Level  Level
	// Found is what was found.
	Found string
	// Why says why it matters. Empty when Level is LevelOK.
	Why string
	// Fix is what mends it. Where that is SQL it comes first: statements separated by "; ", and "; then "
	// before what remains to be done by other means. Empty when Level is LevelOK.
	Fix string
}

// ok is a Finding with nothing to do.
func ok(check, object, found string) Finding {
	return Finding{Check: check, Object: object, Level: LevelOK, Found: found}
}
