package connect

import (
	"slices"
	"strconv"
)

// Append expands text, the payload of a row: it appends its schema to schemas, without the brace that ends it, and its
// value to values. It reports false, and appends nothing, for what stays a string: no object of JSON, or one for
// which there is no schema (an array of several kinds, a whole number beyond 64 bits, an empty name).
func (x Expansion) Append(schemas, values, text []byte, name string) ([]byte, []byte, bool) {
	if len(text) == 0 || text[0] != '{' {
		return schemas, values, false
	}
	document, err := parse(text)
	if err != nil {
		return schemas, values, false
	}
	s, err := x.infer(name, document)
	if err != nil {
		return schemas, values, false
	}
	expanded, err := s.appendValue(values, &document)
	if err != nil {
		return schemas, values, false
	}
	return s.append(schemas), expanded, true
}

// appendValue appends n, nil when it is not there. It fails when n is not what the schema says.
func (m *schema) appendValue(dst []byte, n *node) ([]byte, error) {
	switch {
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
		return m.appendObject(dst, n)
	case arrayNode:
		dst = append(dst, '[')
		for i := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = m.item.appendValue(dst, &n.items[i]); err != nil {
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

func (m *schema) appendObject(dst []byte, n *node) ([]byte, error) {
	dst = append(dst, '{')
	for i, f := range m.fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, []byte(f.name)), ':')
		var value *node
		if at := slices.Index(n.names, f.name); at >= 0 {
			value = &n.items[at]
		}
		var err error
		if dst, err = f.schema.appendValue(dst, value); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}
