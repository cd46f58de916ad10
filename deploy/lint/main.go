// Lint judges what no installable tool does: a Dockerfile as docker build --check would, without Docker, resources of
// the Prometheus operator by the operator's own types, and dashboards by Grafana's. It is a module of its own, so that
// walrelay need not know what these need.
//
//	lint dockerfile|monitoring|dashboard FILE...
package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	checks := map[string]func(text []byte) error{
		"dockerfile": dockerfile, "monitoring": monitoring, "dashboard": grafana,
	}
	if len(args) < 2 || checks[args[0]] == nil {
		return errors.New("usage: lint dockerfile|monitoring|dashboard FILE...")
	}
	var faults []error
	for _, path := range args[1:] {
		text, err := os.ReadFile(path)
		if err == nil {
			err = checks[args[0]](text)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", path, err))
		}
	}
	return errors.Join(faults...)
}
