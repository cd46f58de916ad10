package sink

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// rewrite is what Kafka Connect's RegexRouter does to a topic: a name that matches as a whole gets its first match
// replaced, any other is left alone.
type rewrite struct {
	whole, first *regexp.Regexp
	parts        []rewritePart
}

type rewritePart struct {
	literal string
	group   int // -1 for a literal
}

// Rewrite has the names that the template yields changed: regex and replacement are in the syntax of
// java.util.regex, as far as Go's regexp knows it: no lookaround, no back references, no possessive quantifiers.
func (t *Template) Rewrite(regex, replacement string) error {
	r := &rewrite{}
	var err error
	if r.first, err = regexp.Compile(regex); err != nil {
		return fmt.Errorf("read the regular expression: %w", err)
	}
	if r.whole, err = regexp.Compile(`\A(?:` + regex + `)\z`); err != nil {
		return fmt.Errorf("read the regular expression: %w", err)
	}
	if err = r.parse(replacement); err != nil {
		return fmt.Errorf("read the replacement: %w", err)
	}
	t.rewrite = r
	return nil
}

// parse reads a replacement as Matcher.appendReplacement does: ${name}, $1, and \ before what is meant literally. A
// number takes further digits as long as there is such a group.
func (r *rewrite) parse(text string) error {
	var literal strings.Builder
	group := func(n int) {
		r.parts = append(r.parts, rewritePart{literal.String(), -1}, rewritePart{group: n})
		literal.Reset()
	}
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 == len(text), text[i] == '$' && i+1 == len(text):
			return errors.New("it ends within an escape or a reference")
		case text[i] == '\\':
			i++
			literal.WriteByte(text[i])
		case text[i] != '$':
			literal.WriteByte(text[i])
		case text[i+1] == '{':
			name, _, closed := strings.Cut(text[i+2:], "}")
			n := r.first.SubexpIndex(name)
			if !closed || n < 0 {
				return fmt.Errorf("the regular expression has no group named %q", name)
			}
			group(n)
			i += len(name) + 2
		default:
			n, digits := -1, i+1
			for ; digits < len(text) && text[digits] >= '0' && text[digits] <= '9'; digits++ {
				longer, err := strconv.Atoi(text[i+1 : digits+1])
				if err != nil || n >= 0 && longer > r.first.NumSubexp() {
					break
				}
				n = longer
			}
			if n < 0 || n > r.first.NumSubexp() {
				return errors.New("a $ must be followed by the number of a group, or by its name in braces")
			}
			group(n)
			i = digits - 1
		}
	}
	r.parts = append(r.parts, rewritePart{literal.String(), -1})
	return nil
}

// apply changes the name that dst ends with, from start on.
func (r *rewrite) apply(dst []byte, start int) []byte {
	name := dst[start:]
	if !r.whole.Match(name) {
		return dst
	}
	at := r.first.FindSubmatchIndex(name)
	made := append([]byte(nil), name[:at[0]]...)
	for _, p := range r.parts {
		switch {
		case p.group < 0:
			made = append(made, p.literal...)
		case at[2*p.group] >= 0:
			made = append(made, name[at[2*p.group]:at[2*p.group+1]]...)
		}
	}
	made = append(made, name[at[1]:]...)
	return append(dst[:start], made...)
}
