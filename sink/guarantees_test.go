package sink

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the tables of answers into docs/guarantees.md")

const guarantees = "../docs/guarantees.md"

// table is a generated part of the document.
type answerTable struct {
	begin, end string
	classify   func(sarama.KError) verdict
}

// The tables of what the brokers' answers mean are what the code does.
func TestGuarantees_Answers(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile(guarantees)
	require.NoError(t, err)
	current := string(document)
	for _, table := range []answerTable{
		{
			"<!-- answers: generated from sink/classify.go by go test ./sink -run TestGuarantees -update -->\n",
			"<!-- end of answers -->\n", classify,
		},
		{
			"<!-- transaction answers: generated from sink/coordinator.go by go test ./sink -run TestGuarantees -update -->\n",
			"<!-- end of transaction answers -->\n", classifyTransaction,
		},
	} {
		before, rest, found := strings.Cut(current, table.begin)
		require.True(t, found, table.begin)
		_, after, found := strings.Cut(rest, table.end)
		require.True(t, found, table.end)
		current = before + table.begin + answers(table.classify) + table.end + after
	}
	if *update {
		require.NoError(t, os.WriteFile(guarantees, []byte(current), 0o644))
		return
	}
	require.Equal(t, current, string(document), "run go test ./sink -run TestGuarantees -update")
}

// answers lists the codes that a classifier knows, one reason a line.
func answers(classify func(sarama.KError) verdict) string {
	var b strings.Builder
	b.WriteString("| code | answer | then | why |\n| --- | --- | --- | --- |\n")
	unknown := classify(sarama.KError(-1000))
	for code := sarama.KError(-1); code < 150; code++ {
		v := classify(code)
		if v == unknown {
			continue
		}
		text, _, _ := strings.Cut(strings.TrimPrefix(code.Error(), "kafka server: "), ". ")
		fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", code, strings.TrimSuffix(text, "."), v.class, v.reason)
	}
	fmt.Fprintf(&b, "| other | | %s | %s |\n", unknown.class, unknown.reason)
	return b.String()
}
