package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/decoder"
)

// maxIdentifier is PostgreSQL's NAMEDATALEN - 1, in bytes.
const maxIdentifier = 63

// Tables is a comma-separated list of tables, each an SQL name: public.outbox, "we ird"."Out""box".
type Tables struct {
	input
	Tables []Table
}

// Table is a table as the catalog names it.
type Table struct{ Schema, Name string }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Tables) UnmarshalText(b []byte) error {
	t.raw = string(b)
	t.Tables, t.err = parseTables(t.raw)
	return nil
}

func parseTables(text string) ([]Table, error) {
	var tables []Table
	seen := make(map[Table]bool)
	for rest := text; ; {
		table, tail, err := parseTable(rest)
		if err != nil {
			return nil, err
		}
		if seen[table] {
			return nil, fmt.Errorf("must name a table once, but %q.%q comes twice", table.Schema, table.Name)
		}
		seen[table] = true
		tables = append(tables, table)
		if tail == "" {
			return tables, nil
		}
		if tail[0] != ',' {
			return nil, fmt.Errorf("must have a comma between tables, not %q", tail)
		}
		rest = tail[1:]
	}
}

func parseTable(text string) (table Table, rest string, err error) {
	first, rest, err := parseIdentifier(text)
	if err != nil {
		return Table{}, "", err
	}
	if !strings.HasPrefix(rest, ".") {
		return Table{Schema: "public", Name: first}, rest, nil
	}
	second, rest, err := parseIdentifier(rest[1:])
	return Table{Schema: first, Name: second}, rest, err
}

// parseIdentifier reads one SQL identifier. As in SQL, quotes keep every character (a quote itself is
// doubled), and without them upper case folds to lower case.
// https://www.postgresql.org/docs/current/sql-syntax-lexical.html#SQL-SYNTAX-IDENTIFIERS
func parseIdentifier(text string) (name, rest string, err error) {
	text = strings.TrimLeft(text, " ")
	if strings.HasPrefix(text, `"`) {
		name, rest, err = parseQuoted(text[1:])
	} else {
		n := 0
		for n < len(text) && identifierByte(text[n], n == 0) {
			n++
		}
		name, rest = foldASCII(text[:n]), text[n:]
		if name == "" {
			err = fmt.Errorf("must list SQL names such as public.outbox or \"Schema\".\"Table\"; cannot read %q", text)
		}
	}
	if err == nil {
		err = identifierFault(name)
	}
	return name, strings.TrimLeft(rest, " "), err
}

func parseQuoted(text string) (name, rest string, err error) {
	var b strings.Builder
	for {
		part, tail, closed := strings.Cut(text, `"`)
		if !closed {
			return "", "", errors.New("must close its double quotes")
		}
		b.WriteString(part)
		if !strings.HasPrefix(tail, `"`) {
			return b.String(), tail, nil
		}
		b.WriteByte('"')
		text = tail[1:]
	}
}

// foldASCII folds like the server, which leaves letters beyond ASCII alone in multi-byte encodings.
func foldASCII(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}

func identifierByte(c byte, first bool) bool {
	letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= 0x80
	return letter || !first && (c >= '0' && c <= '9' || c == '$')
}

// identifierFault says why name cannot be an identifier, even quoted.
func identifierFault(name string) error {
	switch {
	case name == "":
		return errors.New("must not have an empty name")
	case len(name) > maxIdentifier:
		return fmt.Errorf("must not have a name of more than %d bytes", maxIdentifier)
	case strings.ContainsRune(name, 0):
		return errors.New("must not have a NUL in a name")
	}
	return nil
}

// Mappings gives every table the configured columns; route lists those of the topic template.
func (s *Settings) Mappings(route []string) []decoder.Mapping {
	mappings := make([]decoder.Mapping, 0, len(s.Tables.Tables))
	for _, t := range s.Tables.Tables {
		mappings = append(mappings, decoder.Mapping{
			Schema: t.Schema, Table: t.Name,
			ID: s.ColumnID.Text, Key: s.ColumnKey.Text, Payload: s.ColumnPayload.Text,
			Type: s.ColumnType.Text, Headers: s.ColumnHeaders.Text,
			Timestamp: s.ColumnTimestamp.Text, TraceParent: s.ColumnTraceparent.Text,
			TraceState: s.ColumnTracestate.Text, SpanContext: s.ColumnTracingspancontext.Text,
			Route: route,
			Extra: s.AdditionalColumns.Columns, ExtraRequired: s.AdditionalMissing.Text == "error",
		})
		m := &mappings[len(mappings)-1]
		if s.KeyTemplate.Text != "" {
			setKeyTemplate(m, s.KeyTemplate.Text)
		}
		s.TableColumns.apply(m)
	}
	return mappings
}

// chooseTables finds the tables of --table among the configured ones; without any, it is those.
func chooseTables(config *cdc.Config, names []string) ([]decoder.Mapping, error) {
	if len(names) == 0 {
		return config.Mappings, nil
	}
	var chosen []decoder.Mapping
	for _, text := range names {
		asked, rest, err := parseTable(text)
		if err != nil || rest != "" {
			return nil, fmt.Errorf("--table %q is not the name of a table", text)
		}
		i := slices.IndexFunc(config.Mappings, func(m decoder.Mapping) bool {
			return m.Schema == asked.Schema && m.Table == asked.Name
		})
		if i < 0 {
			return nil, fmt.Errorf("--table %s is none of WALRELAY_TABLES", text)
		}
		chosen = append(chosen, config.Mappings[i])
	}
	return chosen, nil
}

// messages maps the logical messages of each prefix that is set.
func (s *Settings) messages(route []string) (mappings []*decoder.Mapping) {
	if prefix := s.MessagePrefix.Text; prefix != "" {
		mappings = append(mappings, decoder.MessageMapping(prefix, route))
	}
	if prefix := s.MessageBinaryPrefix.Text; prefix != "" {
		mappings = append(mappings, decoder.BinaryMapping(prefix, route))
	}
	return mappings
}

// Brokers is a comma-separated list of host:port.
type Brokers struct {
	input
	Addrs []string
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *Brokers) UnmarshalText(text []byte) error {
	b.raw = string(text)
	if b.raw == "" {
		return nil
	}
	for addr := range strings.SplitSeq(b.raw, ",") {
		addr = strings.TrimSpace(addr)
		host, _, err := splitAddr(addr)
		if err != nil || host == "" {
			b.err = fmt.Errorf("must be host:port, comma-separated, as in kafka-1:9092,kafka-2:9092; cannot read %q", addr)
			return nil
		}
		b.Addrs = append(b.Addrs, addr)
	}
	return nil
}

func splitAddr(addr string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return host, uint16(n), err
}
