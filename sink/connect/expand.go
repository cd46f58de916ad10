package connect

import (
	"strconv"
	"unicode/utf8"
)

// Append expands text, the payload of a row: it appends its schema to schemas, without the brace that ends it, and its
// value to values. It reports false, and appends nothing, for what stays a string: no object of JSON, or one for
// which there is no schema (an array of several kinds, a whole number beyond 64 bits, an empty name), or that is beyond
// the limits of parse, or of mostExpanded.
func (x Expansion) Append(schemas, values, text []byte, name string) ([]byte, []byte, bool) {
	if len(text) == 0 || text[0] != '{' {
		return schemas, values, false
	}
	return x.AppendAny(schemas, values, text, name)
}

// AppendAny is Append for a text that is JSON and may be any value: the payload of a logical message.
func (x Expansion) AppendAny(schemas, values, text []byte, name string) ([]byte, []byte, bool) {
	if !utf8.Valid(text) { // what is not would be replaced
		return schemas, values, false
	}
	document, err := parse(text)
	if err != nil {
		return schemas, values, false
	}
	most := mostExpanded(text)
	inference := inference{Expansion: x, left: most}
	s, err := inference.infer(name, &document)
	if err != nil || s == nil {
		return schemas, values, false
	}
	expanded, err := s.appendValue(values, &document, len(values)+most)
	if err != nil {
		return schemas, values, false
	}
	return s.append(schemas), expanded, true
}

// mostExpanded is how many bytes may become of a document, and of the names in its schema: where the objects of an
// array differ each gets the members of all, so that both may grow with the square of the document.
func mostExpanded(text []byte) int { return 4*len(text) + 16<<20 }

// appendValue appends n, nil when it is not there. It fails when n is not what the schema says, or dst gets longer than
// most.
func (m *schema) appendValue(dst []byte, n *node, most int) ([]byte, error) {
	switch {
	case len(dst) > most:
		return dst, errShape
	case n == nil || n.kind == nullNode:
		if m.required {
			return dst, errShape
		}
		return append(dst, "null"...), nil
	case n.kind != m.kind:
		return dst, errShape
	}
	switch n.kind {
	case objectNode:
		return m.appendObject(dst, n, most)
	case arrayNode:
		dst = append(dst, '[')
		for i := range n.list.values {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = m.item.appendValue(dst, &n.list.values[i], most); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	case stringNode:
		return AppendString(dst, []byte(n.text)), nil
	case boolNode:
		return appendBool(dst, n.truth), nil
	case doubleNode:
		return appendDouble(dst, n.double, 64), nil
	default:
		return strconv.AppendInt(dst, n.whole, 10), nil
	}
}

func (m *schema) appendObject(dst []byte, n *node, most int) ([]byte, error) {
	dst = append(dst, '{')
	for i, name := range m.fields.names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, []byte(name)), ':')
		var value *node
		if at := n.list.find(name); at >= 0 {
			value = &n.list.values[at]
		}
		var err error
		if dst, err = m.fields.values[i].appendValue(dst, value, most); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}
