package docs_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// advice is what a red test says to whoever changed a page.
const advice = "%s, line %d:\n%s\n\nEvery command in the documentation is run (docs/doc_test.go says how). " +
	"Mend it; or give its section what it needs, in docs/sections_test.go under %q; or, when no test can run it, " +
	"name it in docs/exceptions_test.go with the reason."

// The pages are run from top to bottom, one section after the other.
func TestCommands(t *testing.T) {
	for _, page := range pages(t) {
		for _, s := range sections(t, page) {
			if runs(s) {
				t.Run(s.name(), func(t *testing.T) { run(t, s) })
			}
		}
	}
}

func runs(s section) bool {
	return slices.ContainsFunc(s.steps, func(step step) bool { return kindOf(s, step) == command })
}

func run(t *testing.T, s section) {
	needs := needed[s.name()]
	w := newWorld(t)
	if !needs.fresh {
		w.streamed(t)
	}
	if needs.given != nil {
		needs.given(t, w)
	}
	var current step
	defer func() {
		if t.Failed() {
			t.Logf(advice, s.page, current.line, current.text, s.name())
		}
	}()
	for _, current = range s.steps {
		if kindOf(s, current) != command {
			continue
		}
		text := replace(w, needs.replace, current.text)
		switch args := needs.args; current.language {
		case "sh":
			w.sh(t, text)
		case "sql":
			w.sql(t, text, args...)
		case "replication":
			w.replication(t, text)
		}
	}
	if needs.then != nil {
		needs.then(t, w)
	}
	require.Equal(t, byte('I'), w.conn.PgConn().TxStatus(), "a transaction is left open")
}

// replace puts what is there in the place of what a page uses as an example.
func replace(w *world, own map[string]string, text string) string {
	for _, words := range []map[string]string{own, {
		"postgres://walrelay@db.example.com/shop": w.env["WALRELAY_DATABASE_URL"],
		"kafka-1:9092,kafka-2:9092":               w.env["WALRELAY_KAFKA_BROKERS"],
		"kafka-1:9092":                            w.env["WALRELAY_KAFKA_BROKERS"],
		"localhost:8080":                          w.env["WALRELAY_ADMIN_ADDR"],
		"127.0.0.1:8080":                          w.env["WALRELAY_ADMIN_ADDR"],
		"HOST:8080":                               w.env["WALRELAY_ADMIN_ADDR"],
	}} {
		for _, word := range slices.Backward(slices.Sorted(maps.Keys(words))) { // the longer one of two first
			text = strings.ReplaceAll(text, word, os.Expand(words[word], func(name string) string { return w.env[name] }))
		}
	}
	return text
}

type kind int

const (
	unknown kind = iota
	command      // run
	excerpt      // of a program in this repository
	picture      // or output, or a fragment of configuration
	excused      // named in exceptions
)

func kindOf(s section, step step) kind {
	if _, ok := excuse(s, step); ok {
		return excused
	}
	switch step.language {
	case "sh", "sql", "replication":
		return command
	case "go", "java", "python":
		return excerpt
	case "text", "json", "yaml", "ini", "promql":
		return picture
	}
	return unknown
}

// commandLine begins like one: in a block of text it would be run by nobody.
var commandLine = regexp.MustCompile(`(?m)^(\$ )?((bin/)?` + tools + ` [a-z-]|` + verbs + ` [^\n]*;)`)

// Nothing escapes: each block says what it is.
func TestBlocks(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		for _, s := range sections(t, page) {
			for _, step := range s.steps {
				switch kindOf(s, step) {
				case unknown:
					t.Errorf("%s, line %d: a block in %q. Say what it is: ```sh and ```sql are run, ```go, ```java and "+
						"```python are excerpts of tested programs, ```text is output or a picture", page, step.line, step.language)
				case picture:
					if found := commandLine.FindString(step.text); found != "" {
						t.Errorf("%s, line %d: %q is a command in a block of %s, where nobody runs it. Make it sh or sql",
							page, step.line, found, step.language)
					}
				case excerpt:
					if !excerpted(t, step) {
						t.Errorf("%s, line %d: these lines of %s are in no file of the repository, in this order. Show lines of "+
							"a program that a test runs, or name the block in docs/exceptions_test.go", page, step.line, step.language)
					}
				case command, excused:
				}
			}
		}
	}
}

// excerpted says whether a file has the lines of a block, in their order and whatever lies between them. A line
// of dots stands for what was left out; comments behind the code are the page's own.
func excerpted(t *testing.T, block step) bool {
	t.Helper()
	extension := map[string]string{"go": ".go", "java": ".java", "python": ".py"}[block.language]
	for _, name := range programsIn(t, extension) {
		rest, all := read(t, name), true
		for line := range strings.Lines(block.text) {
			line, _, _ = strings.Cut(line, "//")
			if line = strings.TrimSpace(line); line == "" || strings.HasSuffix(line, "…") {
				continue
			}
			_, after, found := strings.Cut(rest, line)
			if !found {
				all = false
				break
			}
			rest = after
		}
		if all {
			return true
		}
	}
	return false
}

func programsIn(t *testing.T, extension string) (names []string) {
	t.Helper()
	for _, folder := range []string{"examples", "kit", "testenv"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, _ os.DirEntry, err error) error {
			if filepath.Ext(path) == extension {
				name, _ := filepath.Rel(root, path) // both begin with root
				names = append(names, name)
			}
			return err
		}))
	}
	return names
}

// What is registered is there: a renamed heading must not leave its needs behind, nor an exception outlive its use.
func TestRegistered(t *testing.T) {
	t.Parallel()
	there, used := map[string]bool{}, map[string]bool{}
	text := ""
	for _, page := range pages(t) {
		for _, s := range sections(t, page) {
			there[s.name()] = len(s.steps) > 0
			for _, step := range s.steps {
				if key, ok := excuse(s, step); ok {
					used[key] = true
				}
				text += step.text + "\n"
			}
		}
	}
	for name := range needed {
		require.True(t, there[name], "docs/sections_test.go: no commands in %s", name)
	}
	for name := range exceptions {
		require.True(t, used[name], "docs/exceptions_test.go: no such command: %s", name)
	}
	for name := range programs {
		require.Contains(t, text, name+" ", "docs/exceptions_test.go: no page uses it")
	}
}
