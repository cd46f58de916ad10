package main

import (
	"bytes"
	"errors"
	"fmt"

	v1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// monitoring decodes each document into the type of its kind, which refuses unknown fields and wrong types.
func monitoring(text []byte) error {
	var faults []error
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var kind struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return err
		}
		var into any
		switch kind.APIVersion + " " + kind.Kind {
		case "monitoring.coreos.com/v1 ServiceMonitor":
			into = new(v1.ServiceMonitor)
		case "monitoring.coreos.com/v1 PrometheusRule":
			into = new(v1.PrometheusRule)
		default:
			faults = append(faults, fmt.Errorf("%s %s is none of the operator's", kind.APIVersion, kind.Kind))
			continue
		}
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", kind.Kind, err))
		}
	}
	return errors.Join(faults...)
}
