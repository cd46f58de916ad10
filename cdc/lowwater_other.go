//go:build !linux

package cdc

// Elsewhere SO_RCVLOWAT blocks readers instead of the poller, or is not there.
func setLowWater(uintptr, int) {}
