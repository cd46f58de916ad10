package parity

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/twmb/franz-go/pkg/kgo"
)

// none is shown for a record that is not there.
const none = "no record"

// difference is what walrelay has otherwise, and is to have: where Debezium has theirs, it has ours.
type difference struct {
	row          string // its name; empty: all of them
	theirs, ours string
}

// lacking counts the rows of which a tool has no record.
func (c *parity) lacking(tool string) int {
	n := 0
	for _, d := range c.differences {
		if tool == "debezium" && d.theirs == none || tool == "walrelay" && d.ours == none {
			n++
		}
	}
	return n
}

// compare shows records line by line, and returns how many pairs there are and how many differ. What walrelay adds are
// its own headers.
func (c *parity) compare(
	t *testing.T, names map[string]string, theirs, ours map[string]*kgo.Record,
) (pairs, stated int) {
	t.Helper()
	for _, row := range slices.Sorted(maps.Values(names)) {
		want, got := c.shown("debezium", theirs[row]), c.shown("walrelay", ours[row])
		plain := want
		for _, d := range c.differences {
			if d.row != "" && d.row != row {
				continue
			}
			if assert.Contains(t, want, d.theirs, "%s: Debezium no longer has this", row) {
				want = strings.ReplaceAll(want, d.theirs, d.ours)
			}
		}
		if plain == none && want != none {
			assert.Contains(t, got, want, row)
		} else {
			assert.Equal(t, want, got, row)
		}
		if plain != none || got != none {
			pairs++
		}
		if plain != want {
			stated++
		}
		if theirs[row] != nil && ours[row] != nil && !c.stamped {
			assert.WithinDuration(t, theirs[row].Timestamp, ours[row].Timestamp, time.Minute, row)
		}
	}
	t.Logf("%d pairs of records, %d of which differ as stated", pairs, stated)
	return pairs, stated
}

func (c *parity) shown(tool string, r *kgo.Record) string {
	if r == nil {
		return none
	}
	lines := []string{"topic " + strings.TrimPrefix(r.Topic, c.prefix(tool))}
	if r.Key != nil || !c.spread {
		lines = append(lines, fmt.Sprint("partition ", r.Partition))
	}
	if c.stamped {
		lines = append(lines, r.Timestamp.UTC().Format(time.RFC3339Nano))
	}
	lines = append(lines, "key"+text(r.Key), "value"+text(r.Value))
	for _, h := range r.Headers {
		if !strings.HasPrefix(h.Key, "walrelay-") {
			lines = append(lines, h.Key+text(h.Value))
		}
	}
	return strings.Join(lines, "\n")
}

func text(b []byte) string {
	if b == nil {
		return " null"
	}
	return "=" + string(b)
}
