// Package deploy holds what runs walrelay elsewhere: image, compose file, systemd unit, Helm chart, alerts,
// dashboard. Its tests keep those true to the program: settings, metrics and sections that they name exist, the
// program accepts the configurations, and the tools of each format accept the files where they are installed.
package deploy

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// directory is for what the tests build; it goes when they end.
var directory string

func TestMain(m *testing.M) {
	code := 1
	defer func() { os.Exit(code) }()
	var err error
	if directory, err = os.MkdirTemp("", "walrelay-deploy-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer os.RemoveAll(directory)
	code = m.Run()
}

// files calls visit with every file of this folder but the tests.
func files(t *testing.T, visit func(path, content string)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, ".go") {
			return err
		}
		visit(path, read(t, path))
		return nil
	}))
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}

// parse decodes YAML or JSON.
func parse(t *testing.T, path string) any {
	t.Helper()
	var document any
	if strings.HasSuffix(path, ".json") {
		require.NoError(t, json.Unmarshal([]byte(read(t, path)), &document), path)
	} else {
		require.NoError(t, yaml.Unmarshal([]byte(read(t, path)), &document), path)
	}
	return document
}

// at goes down a document by keys.
func at(t *testing.T, document any, keys ...string) any {
	t.Helper()
	for _, key := range keys {
		members, ok := document.(map[string]any)
		require.True(t, ok, key)
		require.Contains(t, members, key)
		document = members[key]
	}
	return document
}

// texts returns the texts that stand under a key, at any depth.
func texts(document any, key string) (found []string) {
	switch node := document.(type) {
	case map[string]any:
		for name, member := range node {
			if text, ok := member.(string); ok && name == key {
				found = append(found, text)
			}
			found = append(found, texts(member, key)...)
		}
	case []any:
		for _, element := range node {
			found = append(found, texts(element, key)...)
		}
	}
	return found
}

func TestFiles_Parse(t *testing.T) {
	t.Parallel()
	files(t, func(path, _ string) {
		switch filepath.Ext(path) {
		case ".yaml", ".json":
			if filepath.Base(filepath.Dir(path)) != "templates" {
				require.NotNil(t, parse(t, path), path)
			}
		}
	})
}

// settings are the documented ones, by variable, with their defaults.
func settings(t *testing.T) map[string]string {
	t.Helper()
	defaults := make(map[string]string)
	row := regexp.MustCompile("(?m)^\\| `(WALRELAY_\\w+)` \\| (?:`([^`]*)`|–) \\|")
	for _, match := range row.FindAllStringSubmatch(read(t, "../docs/configuration.md"), -1) {
		defaults[match[1]] = match[2]
	}
	require.Contains(t, defaults, "WALRELAY_KAFKA_BROKERS")
	return defaults
}

func TestSettings_Exist(t *testing.T) {
	t.Parallel()
	known := settings(t)
	named := make(map[string]bool)
	files(t, func(path, content string) {
		for _, variable := range regexp.MustCompile(`WALRELAY_[A-Z0-9_]+`).FindAllString(content, -1) {
			require.Contains(t, known, variable, path)
			named[variable] = true
		}
	})
	require.Greater(t, len(named), 10)
}

// Whoever stops walrelay must wait longer than it does, or the drain is cut short and a tail repeats.
func TestStop_WaitsForTheDrain(t *testing.T) {
	t.Parallel()
	drain, err := time.ParseDuration(settings(t)["WALRELAY_SHUTDOWN_TIMEOUT"])
	require.NoError(t, err)
	for name, text := range map[string]string{
		"compose": at(t, parse(t, "compose.yaml"), "services", "walrelay", "stop_grace_period").(string),
		"systemd": regexp.MustCompile(`TimeoutStopSec=(\S+)`).FindStringSubmatch(read(t, "systemd/walrelay.service"))[1],
		"helm": strconv.Itoa(at(t, parse(t, "helm/walrelay/values.yaml"),
			"terminationGracePeriodSeconds").(int)) + "s",
	} {
		limit, err := time.ParseDuration(text)
		require.NoError(t, err, name)
		require.GreaterOrEqual(t, limit, drain+5*time.Second, name)
	}
}

// rules are the alerts, in their order.
func rules(t *testing.T) []any {
	t.Helper()
	groups := at(t, parse(t, "prometheus/alerts.yaml"), "groups").([]any)
	require.Len(t, groups, 1)
	return at(t, groups[0], "rules").([]any)
}

// Each alert names the stream and the slot, and has a section of its own name that says what to do.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	_, alerts, ok := strings.Cut(read(t, "../docs/operations.md"), "\n## Alerts\n")
	require.True(t, ok)
	alerts, _, _ = strings.Cut(alerts, "\n## ")
	var sections, names []string
	for _, heading := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(alerts, -1) {
		sections = append(sections, heading[1])
	}
	for _, rule := range rules(t) {
		name := at(t, rule, "alert").(string)
		names = append(names, name)
		annotations := at(t, rule, "annotations")
		require.NotEmpty(t, at(t, annotations, "description"), name)
		require.Contains(t, []string{"warning", "critical"}, at(t, rule, "labels", "severity"), name)
		require.Equal(t, "https://github.com/walrelay/walrelay/blob/main/docs/operations.md#"+strings.ToLower(name),
			at(t, annotations, "runbook_url"), name)
		summary := at(t, annotations, "summary").(string)
		if name == "WalrelayRestarting" { // an instance that does not live long enough to tell its stream
			require.Contains(t, summary, "$labels.instance")
			continue
		}
		require.Contains(t, summary, "$labels.stream", name)
		require.Contains(t, summary, "$labels.slot", name)
	}
	require.Equal(t, names, sections, "sections of docs/operations.md are in the order of the alerts")
}

// Each alert fires in one of promtool's tests, and keeps silent in one that has all it looks at.
func TestAlerts_AreTested(t *testing.T) {
	t.Parallel()
	var fires, healthy []string
	for _, test := range at(t, parse(t, "prometheus/alerts_test.yaml"), "tests").([]any) {
		for _, labels := range texts(at(t, test, "promql_expr_test"), "labels") {
			fires = append(fires, regexp.MustCompile(`alertname="(\w+)"`).FindStringSubmatch(labels)[1])
		}
		if at(t, test, "name") == "a healthy pair" {
			require.Equal(t, []any{}, at(t, at(t, test, "promql_expr_test").([]any)[0], "exp_samples"))
			healthy = texts(test, "series")
		}
	}
	require.NotEmpty(t, healthy)
	for _, rule := range rules(t) {
		name := at(t, rule, "alert").(string)
		require.Contains(t, fires, name)
		expression := at(t, rule, "expr").(string)
		for _, metric := range regexp.MustCompile(`\b(?:walrelay|process)_\w+`).FindAllString(expression, -1) {
			require.Contains(t, strings.Join(healthy, "\n"), metric+"{", "%s is not shown to be silent", name)
		}
	}
}
