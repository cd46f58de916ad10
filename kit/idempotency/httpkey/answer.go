package httpkey

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/walrelay/walrelay/kit/idempotency"
)

var errTooLarge = errors.New("answer is larger than what is kept")

// recorder holds an answer back until the transaction has committed. It is no http.Flusher and has no
// Unwrap, so http.ResponseController does not reach past it.
type recorder struct {
	header   http.Header
	sent     http.Header // as it was at WriteHeader, names canonical: what is set later does not count
	code     int
	body     bytes.Buffer
	limit    int64
	tooLarge bool
}

func newRecorder(limit int64) *recorder { return &recorder{header: http.Header{}, limit: limit} }

// Header implements http.ResponseWriter.
func (a *recorder) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *recorder) WriteHeader(code int) {
	if a.code == 0 && code >= 200 && code <= 999 { // net/http panics at others
		a.code = code
		a.sent = canonical(a.header)
	}
}

// Write implements http.ResponseWriter.
func (a *recorder) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.code == http.StatusNoContent || a.code == http.StatusNotModified {
		return 0, http.ErrBodyNotAllowed
	}
	if a.tooLarge || int64(a.body.Len()+len(b)) > a.limit {
		a.tooLarge = true
		return 0, errTooLarge
	}
	return a.body.Write(b)
}

// canonical is a copy under canonical names: net/http sends what a handler has put under any other as well,
// so set-cookie is as secret as Set-Cookie.
func canonical(h http.Header) http.Header {
	clean := make(http.Header, len(h))
	for name, values := range h {
		name = textproto.CanonicalMIMEHeaderKey(name)
		clean[name] = append(clean[name], values...)
	}
	return clean
}

func (a *recorder) status() int {
	a.WriteHeader(http.StatusOK)
	return a.code
}

// saved is the answer without what must not be replayed.
func (a *recorder) saved() idempotency.Response {
	status := a.status()
	header := http.Header{}
	dropped := droppedHeaders(a.sent)
	for name, values := range a.sent {
		if !slices.Contains(dropped, name) && !strings.HasPrefix(name, http.TrailerPrefix) {
			header[name] = values
		}
	}
	// What net/http would find out by itself must be the same in each replay.
	if _, set := a.sent["Content-Type"]; !set && a.body.Len() > 0 && a.sent.Get("Content-Encoding") == "" {
		header.Set("Content-Type", http.DetectContentType(a.body.Bytes()))
	}
	return idempotency.Response{Status: status, Header: header, Body: a.body.Bytes()}
}

func droppedHeaders(h http.Header) []string {
	dropped := []string{
		"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Date", "Content-Length", "Set-Cookie",
	}
	for _, list := range append(h.Values("Connection"), h.Values("Trailer")...) {
		for name := range strings.SplitSeq(list, ",") {
			dropped = append(dropped, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)))
		}
	}
	return dropped
}

// send gives the first caller what the handler wrote.
func (a *recorder) send(w http.ResponseWriter) {
	answer := a.saved()
	if cookies := a.sent["Set-Cookie"]; cookies != nil {
		answer.Header["Set-Cookie"] = append(slices.Clone(w.Header()["Set-Cookie"]), cookies...)
	}
	sendSaved(w, answer)
}

func sendSaved(w http.ResponseWriter, answer idempotency.Response) {
	for name, values := range answer.Header {
		if name == "Vary" { // a middleware outside may have its own
			values = append(slices.Clone(w.Header()[name]), values...)
		}
		w.Header()[name] = values
	}
	if answer.Replayed {
		w.Header().Set(ReplayedHeader, "true")
	}
	if len(answer.Body) > 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(answer.Body)))
	}
	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Body) // a client that went away asks again
}

func problem(w http.ResponseWriter, status int, detail string) {
	sendSaved(w, problemAnswer(status, detail))
}

func problemAnswer(status int, detail string) idempotency.Response {
	body, _ := json.Marshal(map[string]any{ // strings and a number always encode
		"title": http.StatusText(status), "status": status, "detail": detail,
	})
	return idempotency.Response{
		Status: status, Header: http.Header{"Content-Type": {"application/problem+json"}}, Body: append(body, '\n'),
	}
}
