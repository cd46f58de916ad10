//go:build race

package testenv

// buildFlags of the binary: a test that looks for races wants them found there too.
func buildFlags() []string { return []string{"-race"} }
