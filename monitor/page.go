package monitor

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the page's parts
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
)

//go:embed page/page.html
var pageHTML string

//go:embed page/style.css
var pageStyle string

//go:embed page/script.js
var pageScript string

// page is the status page: HTML with style and script inside, so that it needs no second request and no
// network. The present is rendered here, also for the script, which asks for it again and again: then there
// is one place that formats and escapes, and the page says something without script.
type page struct {
	template *template.Template
	policy   string
}

func newPage() (*page, error) {
	parsed, err := template.New("page").Funcs(pageFuncs()).Parse(pageHTML)
	if err != nil {
		return nil, fmt.Errorf("read the status page: %w", err)
	}
	return &page{template: parsed, policy: fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; "+
		"img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		integrity(pageScript), integrity(pageStyle))}, nil
}

// integrity is how a policy names a script or style by what it says.
func integrity(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// view is what the templates show: an empty page without a report.
type view struct {
	*report
	Recent *sample // the newest of the history, nil before the first
	Style  template.CSS
	Script template.JS
}

// Filled says that there is something to show.
func (v view) Filled() bool { return v.report != nil }

// servePage sends the page with the present in it, or empty to those that bear no token: a browser sends
// none when it opens an address, so the page asks for it.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	v := view{Style: template.CSS(pageStyle), Script: template.JS(pageScript)} //nolint:gosec // our own files
	if s.gate.admits(r) {
		v.report, v.Recent = s.report(r.Context()), s.history.newest()
	}
	s.render(w, "page", v)
}

// serveSummary sends the parts of the page that change.
func (s *Server) serveSummary(w http.ResponseWriter, r *http.Request) {
	s.render(w, "summary", view{report: s.report(r.Context()), Recent: s.history.newest()})
}

func (s *Server) render(w http.ResponseWriter, name string, v view) {
	var body bytes.Buffer
	if err := s.page.template.ExecuteTemplate(&body, name, v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", s.page.policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	_, _ = w.Write(body.Bytes())
}
