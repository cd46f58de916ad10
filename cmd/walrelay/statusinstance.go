package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"
)

// instance is the relay that may answer at the configured admin address.
type instance struct {
	url    string                 // empty without an address
	token  func() (string, error) // nil: none is asked for
	client *http.Client
}

// instanceAnswer is what it says of itself.
type instanceAnswer struct {
	URL   string `json:"url"`
	Error string `json:"error,omitempty"` // why it says nothing

	Ready         bool      `json:"ready"`
	State         string    `json:"state,omitempty"`
	Since         time.Time `json:"since,omitzero"`
	Reason        string    `json:"reason,omitempty"`
	Events        uint64    `json:"events"` // read since its start
	InFlight      int       `json:"in_flight_events"`
	SecondsBehind *float64  `json:"seconds_behind"`
	LastError     string    `json:"last_error,omitempty"`
	LastErrorAt   time.Time `json:"last_error_at,omitzero"`
	Troubles      []string  `json:"troubles,omitempty"`
}

// askTimeout is longer than the instance waits for the server.
const askTimeout = 1500 * time.Millisecond

func newInstance(s *Settings) *instance {
	in := &instance{token: s.adminToken(), client: &http.Client{Timeout: askTimeout}}
	if host, port, err := net.SplitHostPort(s.AdminAddr.Text); err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = "127.0.0.1"
		}
		in.url = "http://" + net.JoinHostPort(host, port) + "/status"
	}
	return in
}

// ask returns nil when there is nobody to ask.
func (in *instance) ask(ctx context.Context, stream string) *instanceAnswer {
	if in.url == "" {
		return nil
	}
	answer := &instanceAnswer{URL: in.url}
	if err := in.read(ctx, stream, answer); err != nil {
		*answer = instanceAnswer{URL: in.url, Error: err.Error()}
	}
	return answer
}

func (in *instance) read(ctx context.Context, stream string, answer *instanceAnswer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, in.url, nil)
	if err != nil {
		return err
	}
	if in.token != nil {
		token, err := in.token()
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := in.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", res.Status)
	}
	var doc struct {
		Stream        string   `json:"stream"`
		Ready         bool     `json:"ready"`
		SecondsBehind *float64 `json:"seconds_behind"`
		Status        struct {
			State       string    `json:"state"`
			Since       time.Time `json:"since"`
			Reason      string    `json:"reason"`
			Events      uint64    `json:"events"`
			InFlight    int       `json:"in_flight_events"`
			LastError   string    `json:"last_error"`
			LastErrorAt time.Time `json:"last_error_at"`
			Troubles    []struct {
				Object string `json:"object"`
				Reason string `json:"reason"`
			} `json:"troubles"`
		} `json:"status"`
	}
	if err := json.NewDecoder(res.Body).Decode(&doc); err != nil {
		return fmt.Errorf("read its answer: %w", err)
	}
	if doc.Stream != stream {
		return fmt.Errorf("it is of stream %q", doc.Stream)
	}
	st := &doc.Status
	answer.Ready, answer.SecondsBehind = doc.Ready, doc.SecondsBehind
	answer.State, answer.Since, answer.Reason = st.State, st.Since, st.Reason
	answer.Events, answer.InFlight = st.Events, st.InFlight
	answer.LastError, answer.LastErrorAt = st.LastError, st.LastErrorAt
	for _, t := range st.Troubles {
		answer.Troubles = append(answer.Troubles, t.Object+": "+t.Reason)
	}
	return nil
}

// describe prints it line by line, without what was said already.
func (a *instanceAnswer) describe(line func(name, format string, args ...any), said string) {
	if a.Error != "" {
		line("instance", "%s does not tell: %s", a.URL, a.Error)
		return
	}
	ready := "ready"
	if !a.Ready {
		ready = "not ready"
	}
	line("instance", "%s: %s since %s, %s", a.URL, a.State, a.Since.UTC().Format(time.RFC3339), ready)
	if a.Reason != "" && a.Reason != said {
		line("", "%s", a.Reason)
	}
	line("", "%d events read since its start, %d in flight", a.Events, a.InFlight)
	for _, t := range a.Troubles {
		line("trouble", "%s", t)
	}
	if a.LastError != "" {
		line("last error", "%s at %s", a.LastError, a.LastErrorAt.UTC().Format(time.RFC3339))
	}
}
