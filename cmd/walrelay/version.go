package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCommand struct{}

// Run prints one line.
func (versionCommand) Run(cmd *command) error {
	v := buildVersion()
	_, err := fmt.Fprintf(cmd.stdout, "walrelay %s (%s, %s %s/%s)\n",
		v.version, v.revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// version is what the build recorded of its source.
type version struct{ version, revision string }

func buildVersion() version {
	v := version{version: "unknown", revision: "unknown revision"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			v.revision += "+modified"
		}
	}
	return v
}
