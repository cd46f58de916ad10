package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the repository's.
const root = ".."

// step is a block, or a command within a line.
type step struct {
	line     int
	language string // sh, sql, replication, or as the block says
	text     string
}

// section is what lies between two headings.
type section struct {
	page   string // below root
	anchor string // as in links; empty before the first heading
	steps  []step
}

func (s section) name() string { return s.page + "#" + s.anchor }

// pages are all pages, below root. The CHANGELOG tells what was.
func pages(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root:
			return fs.SkipDir
		case filepath.Ext(path) == ".md" && entry.Name() != "CHANGELOG.md":
			name, err := filepath.Rel(root, path)
			names = append(names, name)
			return err
		}
		return nil
	})
	require.NoError(t, err)
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// tools and verbs are how commands begin.
const (
	tools = `(?:walrelay|make|go|curl|docker|helm|kubectl|psql|pg_upgrade|pg_dump|journalctl|systemctl|kafka-[a-z-]+\.sh)`
	verbs = `(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|ALTER|CREATE|DROP|GRANT|REVOKE|ROLLBACK PREPARED)`
)

var (
	heading = regexp.MustCompile(`^#+ (.*)$`)
	fence   = regexp.MustCompile("^ *```(.*)$")
	// spans are the commands within lines: those of walrelay and of the tools around it, and SQL.
	span            = regexp.MustCompile("`((?:bin/)?" + tools + " [^`]+)`")
	spanSQL         = regexp.MustCompile("`(" + verbs + " [^`]+)`")
	spanReplication = regexp.MustCompile("`([A-Z]+_REPLICATION_SLOT [^`]+)`")
)

// sections takes a page apart.
func sections(t *testing.T, page string) []section {
	t.Helper()
	all := []section{{page: page}}
	seen := map[string]int{}
	var block *step
	for i, line := range strings.Split(read(t, page), "\n") {
		now := &all[len(all)-1]
		switch mark := fence.FindStringSubmatch(line); {
		case mark != nil && block == nil:
			block = &step{line: i + 1, language: mark[1]}
		case mark != nil:
			now.steps, block = append(now.steps, *block), nil
		case block != nil:
			block.text += line + "\n"
		case heading.MatchString(line):
			all = append(all, section{page: page, anchor: anchor(heading.FindStringSubmatch(line)[1], seen)})
		default:
			now.steps = append(now.steps, spans(line, i+1)...)
		}
	}
	require.Nil(t, block, "%s: a block does not end", page)
	return all
}

func spans(line string, number int) (steps []step) {
	line = strings.ReplaceAll(line, `\|`, "|") // in a table
	for language, pattern := range map[string]*regexp.Regexp{"sh": span, "sql": spanSQL, "replication": spanReplication} {
		for _, found := range pattern.FindAllStringSubmatch(line, -1) {
			for _, text := range each(language, found[1]) {
				steps = append(steps, step{line: number, language: language, text: text})
			}
		}
	}
	return steps
}

var choice = regexp.MustCompile(`[a-z-]+(\|[a-z-]+)+`)

// each are the commands that one with a choice, as in up|status|print, stands for.
func each(language, text string) (all []string) {
	found := choice.FindStringIndex(text)
	if language != "sh" || found == nil {
		return []string{text}
	}
	for word := range strings.SplitSeq(text[found[0]:found[1]], "|") {
		all = append(all, text[:found[0]]+word+text[found[1]:])
	}
	return all
}

var dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchor is the name that GitHub gives to a heading: the second one of a kind gets -1.
func anchor(heading string, seen map[string]int) string {
	name := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
	n := seen[name]
	seen[name]++
	if n > 0 {
		return name + "-" + string(rune('0'+n))
	}
	return name
}
