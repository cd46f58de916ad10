package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tool runs a program that not every machine has, and returns what it printed.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	stdout, stderr, err := attempt(t, "", name, args...)
	require.NoError(t, err, "%s %s\n%s%s", name, strings.Join(args, " "), stdout, stderr)
	return stdout
}

// attempt is tool for one that may fail, or is told something on its standard input. It takes the program from where
// make verify-deploy puts it, or from the search path.
func attempt(t *testing.T, stdin, name string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../.cache/tools/bin", name))
	require.NoError(t, err)
	if _, err := os.Stat(path); err != nil {
		path, err = exec.LookPath(name)
		if err != nil {
			require.Empty(t, os.Getenv("WALRELAY_TEST_TOOLS"), "%s is not installed", name)
			t.Skipf("%s is not installed, so its verdict is not asked: make verify-deploy", name)
		}
	}
	command := exec.CommandContext(t.Context(), path, args...)
	var out, diagnostics strings.Builder
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(stdin), &out, &diagnostics
	err = command.Run()
	return out.String(), diagnostics.String(), err
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	tool(t, "promtool", "check", "rules", "--lint=all", "--lint-fatal", "prometheus/alerts.yaml")
	tool(t, "promtool", "test", "rules", "prometheus/alerts_test.yaml")
}

// Names, units and types follow Prometheus' conventions, and everything is explained.
func TestMetrics_Conventions(t *testing.T) {
	t.Parallel()
	stdout, stderr, err := attempt(t, exposition(t), "promtool", "check", "metrics")
	require.NoError(t, err, stdout+stderr)
	require.Empty(t, stdout+stderr)
}

// By Grafana's own schema, which knows every field of every panel.
func TestDashboard_Schema(t *testing.T) {
	t.Parallel()
	tool(t, "deploy-lint", "dashboard", "grafana/walrelay.json")
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
			Type    string
			GridPos struct{ X, Y, W, H int }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "grafana/walrelay.json")), &dashboard))
	taken, ids := make(map[[2]int]string), make(map[int]bool)
	for _, panel := range dashboard.Panels {
		require.False(t, ids[panel.ID], panel.Title)
		ids[panel.ID] = true
		require.Contains(t, []string{"row", "timeseries", "state-timeline", "stat"}, panel.Type, panel.Title)
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

// By the rules of docker build --check; image_test.go does what the files say.
func TestDockerfiles(t *testing.T) {
	t.Parallel()
	tool(t, "deploy-lint", "dockerfile", "Dockerfile", "Dockerfile.release")
}

// Against the schema of the Compose Specification.
func TestCompose(t *testing.T) {
	t.Parallel()
	tool(t, "compose-spec", "compose.yaml")
}

func TestSystemd(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("systemd is Linux's")
	}
	unit := filepath.Join(t.TempDir(), "walrelay.service")
	// verify wants the program to be there.
	text := strings.Replace(read(t, "systemd/walrelay.service"), "/usr/local/bin/walrelay", "/bin/true", 1)
	require.Contains(t, text, "ExecStart=/bin/true run")
	require.NoError(t, os.WriteFile(unit, []byte(text), 0o600))
	stdout, stderr, err := attempt(t, "", "systemd-analyze", "verify", "--man=no", unit)
	require.NoError(t, err, stderr)
	require.Empty(t, stdout+stderr, "systemd ignores what it cannot read")
	// 1.5 of 10: a network service without privileges; 9.6 is a unit without any hardening.
	tool(t, "systemd-analyze", "security", "--offline=true", "--threshold=15", unit)
}
