package main

import (
	"io"
	"strings"
)

// markdownHead has ~ for the backquotes that a raw string cannot hold.
const markdownHead = `# Configuration

<!-- Generated from cmd/walrelay/settings.go: go test ./cmd/walrelay -run DocumentIsCurrent -update -->

walrelay is configured by environment variables. Each is also a flag of the same name, which wins:
~WALRELAY_KAFKA_BROKERS~ is ~--kafka-brokers~. ~walrelay config~ prints what is in effect, secrets
redacted.

- A wrong value stops the start, exit code 2, with every fault listed at once: variable, value, rule.
  A variable ~WALRELAY_…~ that is no setting is a fault too.
- A variable that is set to nothing stands for the default; of the kind text it is an empty value.
- Sizes are bytes: ~1000~, ~1MB~ (10⁶), ~16MiB~ (2²⁰). Durations are as in ~100ms~, ~30s~, ~1m30s~.
- Secrets can be read from a file instead, named by the variable with ~_FILE~ at its end; the newline
  at the file's end is dropped. Prefer that to a flag: flags are visible to every user of the machine.
- PostgreSQL's own variables (~PGHOST~, ~PGPORT~, ~PGUSER~, ~PGPASSWORD~, ~PGPASSFILE~, ~PGSERVICE~,
  ~PGSSLMODE~, …) fill in what ~WALRELAY_DATABASE_URL~ leaves out.
`

// writeMarkdown writes docs/configuration.md.
func writeMarkdown(w io.Writer, settings []declared) error {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(markdownHead, "~", "`"))
	group := ""
	for _, d := range settings {
		if d.group != group {
			group = d.group
			b.WriteString("\n## " + group + "\n\n| Variable | Default | Kind | Meaning |\n| --- | --- | --- | --- |\n")
		}
		def := "–"
		if d.def != "" {
			def = "`" + d.def + "`"
		}
		b.WriteString("| `" + d.variable + "` | " + def + " | " + d.kindText() + " | " + cell(d.help) + " |\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// kindText says what a value looks like.
func (d declared) kindText() string {
	switch d.value.(type) {
	case *Secret:
		return "secret"
	case *Bool:
		return "true or false"
	case *Int:
		return "number of " + d.unit
	case *Size:
		return "bytes"
	case *Duration:
		return "duration"
	case *Tables, *Brokers, *Extensions:
		return "list"
	case *Choice:
		legal := make([]string, 0, len(d.choices))
		for _, choice := range d.choices {
			if choice != "" {
				legal = append(legal, "`"+choice+"`")
			}
		}
		return strings.Join(legal, ", ")
	default:
		return "text"
	}
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
