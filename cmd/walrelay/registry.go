package main

import (
	"context"
	"errors"
	"io"

	"github.com/walrelay/walrelay/checkpoint"
)

// newRegistry reaches the stream's tables through the configured database.
func newRegistry(*Settings) registry { return pendingRegistry{} }

// pendingRegistry answers until package cdc has its registry.
type pendingRegistry struct{}

var errPending = errors.New("the registry of streams is not in this version yet")

func (pendingRegistry) Show(context.Context, string, io.Writer) error { return errPending }

func (pendingRegistry) Release(context.Context, string, checkpoint.Position, checkpoint.Verdict) error {
	return errPending
}

func (pendingRegistry) NewEpoch(context.Context, string) (uint32, error) { return 0, errPending }
