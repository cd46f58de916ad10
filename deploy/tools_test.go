package deploy

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// tool runs a program that not every machine has.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed, so its verdict is not asked", name)
	}
	output, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), output)
	return string(output)
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	tool(t, "promtool", "check", "rules", "--lint=all", "--lint-fatal", "prometheus/alerts.yaml")
	tool(t, "promtool", "test", "rules", "prometheus/alerts_test.yaml")
}

// The expressions of the dashboard become rules, so that promtool reads them.
func TestDashboard_Expressions(t *testing.T) {
	t.Parallel()
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	variables := strings.NewReplacer("$__rate_interval", "1m", "$job", ".+", "$stream", ".+")
	for _, expression := range texts(parse(t, "grafana/walrelay.json"), "expr") {
		rules = append(rules, rule{"panel", variables.Replace(expression)})
		require.NotContains(t, rules[len(rules)-1].Expr, "$", "a variable that the dashboard does not have")
	}
	document, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "dashboard.yaml") // JSON is YAML
	require.NoError(t, os.WriteFile(file, document, 0o600))
	tool(t, "promtool", "check", "rules", "--lint=none", file)
}

// Panels must not cover each other, and each has its own id.
func TestDashboard_Layout(t *testing.T) {
	t.Parallel()
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "grafana/walrelay.json")), &dashboard))
	taken, ids := make(map[[2]int]string), make(map[int]bool)
	for _, panel := range dashboard.Panels {
		require.False(t, ids[panel.ID], panel.Title)
		ids[panel.ID] = true
		pos := panel.GridPos
		require.LessOrEqual(t, pos.X+pos.W, 24, panel.Title)
		for x := pos.X; x < pos.X+pos.W; x++ {
			for y := pos.Y; y < pos.Y+pos.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], panel.Title)
				taken[[2]int{x, y}] = panel.Title
			}
		}
	}
}

func TestSystemd(t *testing.T) {
	t.Parallel()
	unit := filepath.Join(t.TempDir(), "walrelay.service")
	// verify wants the program to be there.
	text := strings.Replace(read(t, "systemd/walrelay.service"), "/usr/local/bin/walrelay", "/bin/true", 1)
	require.Contains(t, text, "ExecStart=/bin/true run")
	require.NoError(t, os.WriteFile(unit, []byte(text), 0o600))
	require.Empty(t, tool(t, "systemd-analyze", "verify", "--man=no", unit), "systemd ignores what it cannot read")
	// 1.5 of 10: a network service without privileges; 9.6 is a unit without any hardening.
	tool(t, "systemd-analyze", "security", "--offline=true", "--threshold=15", unit)
}

func TestHelm(t *testing.T) {
	t.Parallel()
	const chart = "helm/walrelay"
	image := []string{"--set", "image.repository=registry.example.com/walrelay,image.tag=v1"}
	tool(t, "helm", append([]string{"lint", "--strict", chart}, image...)...)

	render := append([]string{"template", "shop", chart, "--kube-version=1.31.0"}, image...)
	kinds := manifests(t, tool(t, "helm", render...))
	require.Contains(t, kinds, "Deployment")
	require.NotContains(t, kinds, "NetworkPolicy")
	require.NotContains(t, kinds, "ServiceMonitor")

	kinds = manifests(t, tool(t, "helm", append(render, "--set", "serviceMonitor.enabled=true,networkPolicy.enabled=true",
		"--set", "serviceMonitor.labels.release=p,podLabels.a=b,podAnnotations.c=d,nodeSelector.e=f,secret=")...))
	require.Contains(t, kinds, "NetworkPolicy")
	require.Equal(t, "p", at(t, kinds["ServiceMonitor"], "metadata", "labels", "release"))
	pod := at(t, kinds["Deployment"], "spec", "template")
	require.Equal(t, "b", at(t, pod, "metadata", "labels", "a"))
	require.NotContains(t, at(t, pod, "spec"), "volumes", "no Secret, no mount")
	// What selects the pods must match their labels.
	labels := at(t, pod, "metadata", "labels").(map[string]any)
	for kind, path := range map[string][]string{
		"Deployment":          {"spec", "selector", "matchLabels"},
		"Service":             {"spec", "selector"},
		"PodDisruptionBudget": {"spec", "selector", "matchLabels"},
		"NetworkPolicy":       {"spec", "podSelector", "matchLabels"},
	} {
		require.Subset(t, labels, at(t, kinds[kind], path...), kind)
	}
}

// manifests decodes what helm rendered, by kind.
func manifests(t *testing.T, text string) map[string]any {
	t.Helper()
	kinds := make(map[string]any)
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var document any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return kinds
		}
		require.NoError(t, err)
		kind := at(t, document, "kind").(string)
		require.NotContains(t, kinds, kind)
		kinds[kind] = document
	}
}
