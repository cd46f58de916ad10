package decoder

import (
	"errors"
	"fmt"
	"strings"
)

// Template makes a text of columns of a row: literal text and {column} references.
type Template struct {
	text     string
	parts    []templatePart
	columns  []string
	literals []string
}

type templatePart struct {
	literal string
	column  int // index into columns; -1 for a literal
}

// ParseTemplate reads a template such as "{tenant}:{order}". Braces in literal text cannot be written.
func ParseTemplate(text string) (*Template, error) {
	t := &Template{text: text}
	for rest := text; rest != ""; {
		literal, tail, found := strings.Cut(rest, "{")
		if literal != "" {
			t.parts = append(t.parts, templatePart{literal: literal, column: -1})
			t.literals = append(t.literals, literal)
		}
		if !found {
			break
		}
		column, after, closed := strings.Cut(tail, "}")
		if !closed || column == "" || strings.Contains(column, "{") {
			return nil, fmt.Errorf("%q: want {column}", "{"+tail)
		}
		t.parts = append(t.parts, templatePart{column: len(t.columns)})
		t.columns = append(t.columns, column)
		rest = after
	}
	if len(t.parts) == 0 {
		return nil, errors.New("a template cannot be empty")
	}
	return t, nil
}

// Columns lists the columns that the template names, in order, and as often.
func (t *Template) Columns() []string { return t.columns }

// Literals lists the pieces of text between the columns.
func (t *Template) Literals() []string { return t.literals }

// String returns the template's text.
func (t *Template) String() string { return t.text }

// Append renders the template with the values of Columns.
func (t *Template) Append(dst []byte, values [][]byte) []byte {
	for _, p := range t.parts {
		if p.column < 0 {
			dst = append(dst, p.literal...)
		} else {
			dst = append(dst, values[p.column]...)
		}
	}
	return dst
}
