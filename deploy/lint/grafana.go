package main

import (
	"errors"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// grafana refuses unknown and missing fields, wrong types and broken rules, in the dashboard, its panels' options and
// its queries.
func grafana(text []byte) error {
	plugins.RegisterDefaultPlugins()
	var d dashboard.Dashboard
	var faults cog.BuildErrors
	err := d.UnmarshalJSONStrict(text) // never nil: a list of faults may be empty
	if !errors.As(err, &faults) || len(faults) > 0 {
		return err
	}
	return d.Validate()
}
