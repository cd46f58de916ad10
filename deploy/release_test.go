package deploy

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRelease(t *testing.T) {
	t.Parallel()
	const config = "../.goreleaser.yaml"
	tool(t, "goreleaser", "check", config)
	build := at(t, parse(t, config), "builds").([]any)[0]
	require.Equal(t, []any{"CGO_ENABLED=0"}, at(t, build, "env"), "static")
	require.Equal(t, []any{"linux", "darwin"}, at(t, build, "goos"))
	require.Equal(t, []any{"amd64", "arm64"}, at(t, build, "goarch"))
	// The image from source is built alike.
	step := regexp.MustCompile(`go build -trimpath -ldflags '([^']*)'`).FindStringSubmatch(read(t, "Dockerfile"))
	require.Equal(t, []any{step[1]}, at(t, build, "ldflags"))
	require.Contains(t, at(t, build, "flags"), "-trimpath")
}

// The released image differs from the one that is built from source by where the binary comes from.
func TestRelease_Image(t *testing.T) {
	t.Parallel()
	last := func(path string) string {
		text := read(t, path)
		stage := text[strings.LastIndex(text, "\nFROM scratch\n"):]
		return regexp.MustCompile(`(?m)^(ARG .*\n|COPY .* /walrelay\n)`).ReplaceAllString(
			strings.ReplaceAll(stage, "--from=build /etc", "--from=authorities /etc"), "")
	}
	require.Equal(t, last("Dockerfile"), last("Dockerfile.release"))
	version := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(read(t, "../go.mod"))[1]
	require.Contains(t, read(t, "Dockerfile.release"), "FROM golang:"+version+" AS")
}
