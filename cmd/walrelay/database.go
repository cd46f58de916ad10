package main

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// requireDatabase is for the commands that talk to PostgreSQL. Without a URL, pgx takes everything
// from PostgreSQL's own variables; something must then name the server, lest a forgotten setting
// connect to whatever listens on this host.
func (s *Settings) requireDatabase(env environment, f *faults) {
	in := &s.DatabaseURL.input
	if in.raw == "" && s.DatabaseURLFile.Text == "" {
		f.check(env["PGHOST"] != "" || env["PGSERVICE"] != "", in, "is required, unless PGHOST or PGSERVICE names the server")
	}
}

// checkDatabase never shows any part of the URL: where it is malformed, a part may be the password.
func (s *Settings) checkDatabase(f *faults) {
	if s.DatabaseURL.Reveal() == "" {
		return
	}
	if _, err := pgconn.ParseConfig(s.DatabaseURL.Reveal()); err != nil {
		f.add(&s.DatabaseURL.input, databaseRule(s.DatabaseURL.Reveal(), err))
	}
}

// databaseRule explains a refused URL by the parser's own reason only when the password is known not
// to be in it.
func databaseRule(text string, err error) string {
	const rule = "must be a PostgreSQL URL or keyword string (percent-encode special characters in a URL's password)"
	u, urlErr := url.Parse(text)
	cause := errors.Unwrap(err)
	if urlErr != nil || u.Scheme == "" || cause == nil {
		return rule
	}
	password, _ := u.User.Password()
	for _, secret := range []string{password, u.Query().Get("password"), u.Query().Get("sslpassword")} {
		if secret != "" && strings.Contains(cause.Error(), secret) {
			return rule
		}
	}
	return rule + ": " + cause.Error()
}

// shownDatabase is the effective connection as a keyword string without the password. It is built
// from the parts that may be seen, since blanking a text out is never safe.
func (s *Settings) shownDatabase() string {
	c, err := pgconn.ParseConfig(s.DatabaseURL.Reveal())
	if err != nil {
		return redacted
	}
	hosts, ports := []string{c.Host}, []string{port(c.Port)}
	for _, fallback := range c.Fallbacks {
		// sslmode=prefer tries a host twice, with TLS and without.
		last := len(hosts) - 1
		if fallback.Host != hosts[last] || port(fallback.Port) != ports[last] {
			hosts, ports = append(hosts, fallback.Host), append(ports, port(fallback.Port))
		}
	}
	text := "host=" + keyword(strings.Join(hosts, ",")) + " port=" + strings.Join(ports, ",") +
		" user=" + keyword(c.User)
	if c.Password != "" {
		text += " password=" + redacted
	}
	if c.Database != "" {
		text += " dbname=" + keyword(c.Database)
	}
	return text
}

func port(p uint16) string { return strconv.Itoa(int(p)) }

// keyword quotes a value of a keyword string where libpq requires it.
func keyword(value string) string {
	if value != "" && !strings.ContainsAny(value, ` '\`) {
		return value
	}
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}
