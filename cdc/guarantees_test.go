package cdc

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// Each line of the table in docs/guarantees.md is what Diagnose does:
//
//	| SQLSTATE | text of the message | then | why |
func TestGuarantees_ServerErrors(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../docs/guarantees.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(document), "<!-- server errors: tested by cdc/guarantees_test.go -->\n")
	require.True(t, found)
	lines := 0
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			if lines > 0 {
				break
			}
			continue
		}
		code, text := strings.Trim(cells[1], " `"), strings.Trim(cells[2], " `")
		if code == "SQLSTATE" || strings.HasPrefix(code, "--") {
			continue
		}
		lines++
		diagnosed := Diagnose(&pgconn.PgError{Code: code, Message: text})
		_, standby := errors.AsType[*SlotActiveError](diagnosed)
		then := "retried"
		switch {
		case standby:
			then = "stands by"
		case Fatal(diagnosed):
			then = "exit 1"
		}
		require.Equal(t, strings.TrimSpace(cells[3]), then, line)
	}
	require.Greater(t, lines, 15)
}
