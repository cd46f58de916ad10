//go:build !linux

package main

import "syscall"

// dieWithParent does nothing where the system cannot do it: there, children outlive a demo that is
// killed outright.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
