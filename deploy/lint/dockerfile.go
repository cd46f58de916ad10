package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/opencontainers/go-digest"
)

// dockerfile has BuildKit's frontend translate every stage, which finds what cannot be built, and takes its rules'
// warnings for errors.
func dockerfile(text []byte) error {
	source := llb.NewSourceMap(nil, "Dockerfile", "Dockerfile", text)
	source.Definition = &llb.Definition{}
	result, err := dockerfile2llb.DockerfileLint(context.Background(), text, dockerfile2llb.ConvertOpt{
		SourceMap: source, MetaResolver: noRegistry{},
	})
	if err != nil {
		return err
	}
	var faults []error
	if result.Error != nil {
		faults = append(faults, errors.New(result.Error.Message))
	}
	for _, w := range result.Warnings {
		var line int32
		if len(w.Location.GetRanges()) > 0 {
			line = w.Location.GetRanges()[0].GetStart().GetLine()
		}
		faults = append(faults, fmt.Errorf("line %d: %s: %s", line, w.RuleName, w.Detail))
	}
	return errors.Join(faults...)
}

// noRegistry stands for the registry: every image is there, and none says anything of itself.
type noRegistry struct{}

func (noRegistry) ResolveImageConfig(
	_ context.Context, ref string, _ sourceresolver.Opt,
) (string, digest.Digest, []byte, error) {
	config := []byte(`{"architecture": "amd64", "os": "linux", "config": {}}`)
	return ref, digest.FromBytes(config), config, nil
}
