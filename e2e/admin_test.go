package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// get asks the relay's admin server. The code is 0 when that does not answer.
func (s *setup) get(path string) (code int, body string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.env["WALRELAY_ADMIN_ADDR"]+path, nil)
	require.NoError(s.t, err)
	if token := s.env["WALRELAY_ADMIN_TOKEN"]; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	return res.StatusCode, string(text)
}

// ready waits until /readyz answers with the code and all parts, and returns that answer.
func (s *setup) ready(code int, parts ...string) (body string) {
	s.t.Helper()
	var got int
	require.Eventually(s.t, func() bool {
		got, body = s.get("/readyz")
		for _, part := range parts {
			if !strings.Contains(body, part) {
				return false
			}
		}
		return got == code
	}, wait, tick, "want %d %q", code, parts)
	return body
}

// reaches waits until a metric has the value. What others see of a deed may come before it is counted.
func (s *setup) reaches(name, label string, value float64) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.metric(name, label) == value }, wait, tick, "%s %s", name, label)
}

// metric is the value of the sample whose labels include label.
func (s *setup) metric(name, label string) float64 {
	s.t.Helper()
	_, body := s.get("/metrics")
	for line := range strings.Lines(body) {
		if head, value, _ := strings.Cut(strings.TrimSpace(line), "} "); strings.HasPrefix(head, name+"{") &&
			strings.Contains(head, label) {
			var v float64
			require.NoError(s.t, json.Unmarshal([]byte(value), &v), line)
			return v
		}
	}
	require.Fail(s.t, "no such metric", "%s %s", name, label)
	return 0
}
