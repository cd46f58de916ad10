package cdc

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// TLSWarnings names each host of a configuration's connection string, in its order, that is not on this machine
// and to which a mode below verify-full is in force: one sentence a host. It connects to nothing.
// https://www.postgresql.org/docs/current/libpq-ssl.html#LIBPQ-SSL-SSLMODE-STATEMENTS
func TLSWarnings(cfg *Config) ([]string, error) {
	config, err := cfg.parse()
	if err != nil {
		return nil, err
	}
	type host struct {
		addr  string
		tries []*tls.Config // one after the other
	}
	var hosts []host
	add := func(name string, port uint16, config *tls.Config) {
		addr := net.JoinHostPort(name, strconv.Itoa(int(port)))
		if local(name) {
			return
		}
		for i := range hosts {
			if hosts[i].addr == addr {
				hosts[i].tries = append(hosts[i].tries, config)
				return
			}
		}
		hosts = append(hosts, host{addr, []*tls.Config{config}})
	}
	add(config.Host, config.Port, config.TLSConfig)
	for _, f := range config.Fallbacks {
		add(f.Host, f.Port, f.TLSConfig)
	}
	var warnings []string
	for _, h := range hosts {
		if mode, risk := modeInForce(h.tries); risk != "" {
			warnings = append(warnings, fmt.Sprintf(
				"PostgreSQL at %s: sslmode=%s is in force, %s; set sslmode=verify-full and sslrootcert in WALRELAY_DATABASE_URL",
				h.addr, mode, risk))
		}
	}
	return warnings, nil
}

// modeInForce tells the mode by what pgx makes of it, which is what counts: a default, a service file, a variable or
// another parameter may have decided. risk is empty when there is none.
func modeInForce(tries []*tls.Config) (mode, risk string) {
	first := tries[0]
	switch {
	case first == nil && !slices.ContainsFunc(tries, encrypted):
		return "disable", "which encrypts nothing"
	case first == nil:
		return "allow", "which encrypts nothing unless the server insists"
	case slices.Contains(tries, nil):
		return "prefer", "which encrypts if the server offers it, and trusts whoever answers"
	case first.InsecureSkipVerify && first.VerifyPeerCertificate == nil:
		return "require", "which encrypts, and trusts whoever answers"
	case first.InsecureSkipVerify:
		return "verify-ca", "which trusts every certificate of the authority, whatever host it was issued to"
	default:
		return "verify-full", ""
	}
}

func encrypted(try *tls.Config) bool { return try != nil }

// local says whether a host is this machine: a directory of Unix sockets, or a loopback address.
func local(host string) bool {
	if strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
