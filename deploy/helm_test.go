package deploy

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const chart = "helm/walrelay"

var image = []string{"--set", "image.repository=registry.example.com/walrelay,image.tag=v1"}

// render renders the chart with helm, asks the schemas of Kubernetes and of the Prometheus operator about the result,
// and returns it by kind.
func render(t *testing.T, values string) map[string]any {
	t.Helper()
	args := append([]string{"template", "shop", chart, "--kube-version=1.31.0"}, image...)
	if values != "" {
		args = append(args, "--set", values)
	}
	kinds := manifests(t, tool(t, "helm", args...))
	dir := t.TempDir()
	for kind, manifest := range kinds {
		text, err := yaml.Marshal(manifest)
		require.NoError(t, err)
		if strings.HasPrefix(at(t, manifest, "apiVersion").(string), "monitoring.coreos.com/") {
			file := filepath.Join(t.TempDir(), kind+".yaml")
			require.NoError(t, os.WriteFile(file, text, 0o600))
			tool(t, "deploy-lint", "monitoring", file)
			continue
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, kind+".yaml"), text, 0o600))
	}
	for _, version := range []string{"1.27", "1.30"} { // the chart's oldest, and the newest that the tool knows
		tool(t, "kubectl-validate", "--version", version, dir)
	}
	return kinds
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

func TestHelm(t *testing.T) {
	t.Parallel()
	tool(t, "helm", append([]string{"lint", "--strict", chart}, image...)...)
	kinds := render(t, "")
	require.NotContains(t, kinds, "NetworkPolicy")
	require.NotContains(t, kinds, "ServiceMonitor")
	require.NotContains(t, kinds, "PrometheusRule")

	spec := at(t, kinds["Deployment"], "spec").(map[string]any)
	require.Equal(t, 2, spec["replicas"], "one active, one standby")
	pod := at(t, spec, "template", "spec").(map[string]any)
	require.Equal(t, false, pod["automountServiceAccountToken"])
	require.Equal(t, false, at(t, kinds["ServiceAccount"], "automountServiceAccountToken"))
	require.Equal(t, at(t, kinds["ServiceAccount"], "metadata", "name"), pod["serviceAccountName"])
	require.Equal(t, true, at(t, pod, "securityContext", "runAsNonRoot"))
	require.Equal(t, "RuntimeDefault", at(t, pod, "securityContext", "seccompProfile", "type"))
	container := at(t, pod, "containers").([]any)[0]
	require.Equal(t, map[string]any{
		"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
		"capabilities": map[string]any{"drop": []any{"ALL"}},
	}, at(t, container, "securityContext"))
	require.Equal(t, "/livez", at(t, container, "livenessProbe", "httpGet", "path"))
	require.Equal(t, "/readyz", at(t, container, "readinessProbe", "httpGet", "path"))
	require.Equal(t, []any{map[string]any{
		"name": "secrets", "secret": map[string]any{"secretName": "walrelay", "defaultMode": 0o440},
	}}, pod["volumes"])
}

func TestHelm_Options(t *testing.T) {
	t.Parallel()
	kinds := render(t, "networkPolicy.enabled=true,podLabels.a=b,podAnnotations.c=d,nodeSelector.e=f,"+
		"networkPolicy.scrapers[0].namespaceSelector.matchLabels.g=h,imagePullSecrets[0].name=i,"+
		"tolerations[0].key=j,tolerations[0].operator=Exists,serviceAccount.annotations.k=l,"+
		"volumes[0].name=ca,volumes[0].configMap.name=ca,volumeMounts[0].name=ca,volumeMounts[0].mountPath=/run/ca")
	require.Contains(t, kinds, "NetworkPolicy")
	pod := at(t, kinds["Deployment"], "spec", "template")
	require.Len(t, at(t, pod, "spec", "volumes"), 2)
	// What selects the pods must match their labels.
	labels := at(t, pod, "metadata", "labels").(map[string]any)
	require.Equal(t, "b", labels["a"])
	for kind, path := range map[string][]string{
		"Deployment":          {"spec", "selector", "matchLabels"},
		"Service":             {"spec", "selector"},
		"PodDisruptionBudget": {"spec", "selector", "matchLabels"},
		"NetworkPolicy":       {"spec", "podSelector", "matchLabels"},
	} {
		require.Subset(t, labels, at(t, kinds[kind], path...), kind)
	}

	kinds = render(t, "secret=,serviceAccount.create=false,replicas=1")
	require.NotContains(t, kinds, "ServiceAccount")
	pod = at(t, kinds["Deployment"], "spec", "template", "spec")
	require.NotContains(t, pod, "volumes", "no Secret, no mount")
	require.Equal(t, "default", at(t, pod, "serviceAccountName"))
}

// What is misspelt is refused, where Kubernetes would be content.
func TestHelm_RefusesUnknownValues(t *testing.T) {
	t.Parallel()
	tool(t, "helm", "version")
	for _, values := range []string{
		"replica=3", "image.tags=v1", "env.walrelay_slot=x", "env.WALRELAY_CREATE_TOPICS=true",
	} {
		t.Run(values, func(t *testing.T) {
			t.Parallel()
			_, stderr, err := attempt(t, "", "helm", append([]string{"template", chart, "--set", values}, image...)...)
			require.Error(t, err)
			require.Contains(t, stderr, "values don't meet the specifications of the schema")
		})
	}
}

// The Prometheus operator gets the same alerts, and the token.
func TestHelm_Monitoring(t *testing.T) {
	t.Parallel()
	const on = "serviceMonitor.enabled=true,serviceMonitor.labels.release=p,prometheusRule.enabled=true," +
		"prometheusRule.labels.release=p"
	kinds := render(t, on)
	monitor, rule := kinds["ServiceMonitor"], kinds["PrometheusRule"]
	require.Equal(t, "p", at(t, monitor, "metadata", "labels", "release"))
	require.Equal(t, "p", at(t, rule, "metadata", "labels", "release"))
	require.Equal(t, at(t, kinds["Service"], "spec", "selector"), at(t, monitor, "spec", "selector", "matchLabels"))
	require.Equal(t, []any{map[string]any{"port": "http", "path": "/metrics", "interval": "15s"}},
		at(t, monitor, "spec", "endpoints"))
	require.Equal(t, parse(t, "prometheus/alerts.yaml"), at(t, rule, "spec"))

	kinds = render(t, on+",replicas=1,prometheusRule.without[0]=WalrelayBehind,serviceMonitor.bearerToken.secret=admin")
	require.Equal(t, map[string]any{"credentials": map[string]any{"name": "admin", "key": "admin-token"}},
		at(t, at(t, kinds["ServiceMonitor"], "spec", "endpoints").([]any)[0], "authorization"))
	named := texts(kinds["PrometheusRule"], "alert")
	require.Len(t, named, len(rules(t))-2)
	require.NotContains(t, named, "WalrelayBehind")
	require.NotContains(t, named, "WalrelayStandbyMissing")
}
