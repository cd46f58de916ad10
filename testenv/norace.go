//go:build !race

package testenv

func buildFlags() []string { return nil }
