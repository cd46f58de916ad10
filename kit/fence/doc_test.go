package fence_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// The SQL for other languages is accepted by a server that has the tables.
func TestDocs_SQL(t *testing.T) {
	t.Parallel()
	db := prepare(t, testenv.Postgres(t, 18))
	db.Exec(t, "CREATE TABLE account (id bigint, balance bigint, fence bigint)")
	page, err := os.ReadFile("../../docs/patterns/fence.md")
	require.NoError(t, err)
	var statements int
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		sql := regexp.MustCompile(`--[^\n]*`).ReplaceAllString(block[1], "")
		for statement := range strings.SplitSeq(sql, ";") {
			if statement = strings.TrimSpace(statement); statement != "" {
				statements++
				db.Exec(t, fmt.Sprintf("PREPARE s%d AS %s", statements, statement))
			}
		}
	}
	require.Equal(t, 5, statements)
}
