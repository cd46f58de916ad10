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

var update = flag.Bool("update", false, "write the table of answers into docs/guarantees.md")

const (
	guarantees = "../docs/guarantees.md"
	tableBegin = "<!-- answers: generated from sink/classify.go by go test ./sink -run TestGuarantees -update -->\n"
	tableEnd   = "<!-- end of answers -->\n"
)

// The table of what the brokers' answers mean is what the code does.
func TestGuarantees_Answers(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile(guarantees)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(document), tableBegin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, tableEnd)
	require.True(t, found)
	current := before + tableBegin + answers() + tableEnd + after
	if *update {
		require.NoError(t, os.WriteFile(guarantees, []byte(current), 0o644))
		return
	}
	require.Equal(t, current, string(document), "run go test ./sink -run TestGuarantees -update")
}

// answers lists the codes that classify knows, one reason a line.
func answers() string {
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
