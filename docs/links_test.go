package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var link = regexp.MustCompile(`\]\(([^)#:]*)(#[^):]*)?\)`)

// What the pages point to is there: files, and the headings in them.
func TestLinks(t *testing.T) {
	t.Parallel()
	for _, page := range append(pages(t), "CHANGELOG.md") {
		for _, l := range link.FindAllStringSubmatch(read(t, page), -1) {
			target := page
			if l[1] != "" {
				target = filepath.Join(filepath.Dir(page), l[1])
			}
			_, err := os.Stat(filepath.Join(root, target))
			require.NoError(t, err, "%s: %s", page, l[0])
			if l[2] == "" {
				continue
			}
			var anchors []string
			for _, s := range sections(t, target) {
				anchors = append(anchors, s.anchor)
			}
			require.Contains(t, anchors, strings.TrimPrefix(l[2], "#"), "%s: %s", page, l[0])
		}
	}
}

// Nobody has to guess a page's address: the README or the page of patterns leads to each.
func TestLinks_EveryPage(t *testing.T) {
	t.Parallel()
	linked := map[string]bool{"README.md": true, "DEVELOPERS.md": true}
	for _, page := range []string{"README.md", "docs/patterns.md"} {
		for _, l := range link.FindAllStringSubmatch(read(t, page), -1) {
			target := filepath.Join(filepath.Dir(page), l[1])
			linked[target], linked[filepath.Join(target, "README.md")] = true, true
		}
	}
	for _, page := range pages(t) {
		require.True(t, linked[page], "%s: name it under \"Where to go next\" of README.md", page)
	}
}
