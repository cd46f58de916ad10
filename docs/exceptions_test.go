package docs_test

import "strings"

// programs are those that no test runs, and why. In the blocks of the pages they do nothing.
var programs = map[string]string{
	"go":         "it would run these tests, or others, within themselves",
	"journalctl": "needs systemd",
	"kubectl":    "needs a cluster of Kubernetes",
}

// exceptions are blocks and commands that no test here runs, and why: by page, anchor and a part of their text.
// An anchor of * is any, and a text of * all of the language.
var exceptions = map[string]string{
	"docs/patterns.md#*: sql *":             "kit/docs_test.go runs it, with arguments, on every major",
	"docs/patterns/consumer.md#*: sql *":    "kit/docs_test.go runs it, with arguments, on every major",
	"docs/patterns/fence.md#*: sql *":       "kit/docs_test.go runs it, with arguments, on every major",
	"docs/patterns/idempotency.md#*: sql *": "kit/docs_test.go runs it, with arguments, on every major",
	"docs/patterns/inbox.md#*: sql *":       "kit/docs_test.go runs it, with arguments, on every major",
	"docs/patterns/outbox.md#*: sql *":      "kit/docs_test.go runs it, with arguments, on every major",

	"docs/patterns/outbox.md#causes-and-traces: go otel.GetTextMapPropagator": "kit needs no OpenTelemetry",
	"examples/payments/README.md#by-hand: sh psql":                            "make payments does and judges it all",
	"docs/operations.md#looking-at-a-stream: sh walrelay tail":                "it waits for events: e2e/tail_test.go",
	"docs/operations.md#before-the-first-start: sql GRANT rds_replication":    "the role is that of RDS",
	"docs/operations.md#before-the-first-start: sh kafka-acls.sh":             "e2e/privileges_test.go does the same",
}

// excuse finds a step's exception.
func excuse(s section, step step) (key string, ok bool) {
	for key := range exceptions {
		place, what, _ := strings.Cut(key, ": ")
		language, part, _ := strings.Cut(what, " ")
		if language == step.language && (place == s.name() || place == s.page+"#*") &&
			(part == "*" || strings.Contains(step.text, part)) {
			return key, true
		}
	}
	return "", false
}
