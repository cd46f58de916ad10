package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/walrelay/walrelay/testenv"
)

// wire is the network between walrelay and one server: a proxy that can be told to misbehave.
type wire struct {
	proxy *toxiproxy.Proxy
}

// wires makes wires.
type wires struct{ server *toxiproxy.ApiServer }

func newWires() wires {
	zerolog.SetGlobalLevel(zerolog.Disabled) // some of the toxics write to its global logger
	return wires{toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())}
}

// to starts a wire to a server.
func (w wires) to(t testing.TB, name, upstream string) *wire {
	t.Helper()
	proxy := toxiproxy.NewProxy(w.server, name, testenv.Addr(t), upstream)
	if err := proxy.Start(); err != nil {
		t.Fatalf("start proxy: %v", err)
	}
	t.Cleanup(proxy.Stop)
	return &wire{proxy}
}

func (w *wire) addr() string { return w.proxy.Listen }

// toxic is a fault of a connection; see "Toxics" in the documentation of toxiproxy.
type toxic struct {
	Type string `json:"type"`
	// Stream is upstream, towards the server, or downstream.
	Stream     string         `json:"stream"`
	Attributes map[string]int `json:"attributes"`
}

// poison adds a toxic to every connection, present and future.
func (w *wire) poison(t toxic) error {
	text, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode toxic: %w", err)
	}
	if _, err := w.proxy.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
		return fmt.Errorf("add toxic %s: %w", t.Type, err)
	}
	return nil
}

// heal removes all toxics.
func (w *wire) heal(ctx context.Context) { w.proxy.Toxics.ResetToxics(ctx) }

// cut ends all connections and refuses new ones.
func (w *wire) cut() { w.proxy.Stop() }

// mend ends a cut.
func (w *wire) mend() error { return w.proxy.Start() }

// redirect cuts and mends a wire, which leads to another server from then on.
func (w *wire) redirect(upstream string) error {
	w.cut()
	w.proxy.Upstream = upstream
	return w.mend()
}

// cutAndMend ends all connections and accepts new ones at once.
func (w *wire) cutAndMend() error {
	w.cut()
	return w.mend()
}
