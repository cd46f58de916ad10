//go:build !race

package testenv

// Race says whether the detector of races is on, which makes programs larger and slower.
const Race = false

func buildFlags() []string { return nil }
