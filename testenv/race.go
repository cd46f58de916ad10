//go:build race

package testenv

// Race says whether the detector of races is on, which makes programs larger and slower.
const Race = true

// buildFlags of the binary: a test that looks for races wants them found there too.
func buildFlags() []string { return []string{"-race"} }
