package connect

import "slices"

// schema is what Debezium's router infers of a value.
type schema struct {
	kind     nodeKind // nullNode stands for optional bytes
	name     string   // of an object
	required bool     // of objects in an array that differ
	fields   []field
	item     *schema
}

type field struct {
	name   string
	schema *schema
}

// Expansion says how a payload is expanded, as table.expand.json.payload does.
type Expansion struct {
	// Nulls keeps members that are null (table.json.payload.null.behavior=optional_bytes).
	Nulls bool
	// EmptyArrays keeps members that are empty arrays (table.json.payload.empty.array.behavior=optional_string).
	EmptyArrays bool
}

// infer returns nil for what is left out. path names the objects.
func (x Expansion) infer(path string, n node) (*schema, error) {
	switch n.kind {
	case nullNode:
		if x.Nulls {
			return &schema{kind: nullNode}, nil
		}
		return nil, nil //nolint:nilnil // left out
	case arrayNode:
		return x.inferArray(path, n)
	case objectNode:
		return x.inferObject(path, n)
	case bigNode:
		return nil, errShape // a double by schema, and none by value
	default:
		return &schema{kind: n.kind}, nil
	}
}

func (x Expansion) inferObject(path string, n node) (*schema, error) {
	s := &schema{kind: objectNode, name: path}
	for i, name := range n.names {
		below := name
		if path != "" {
			below = path + "." + name
		}
		inferred, err := x.infer(below, n.items[i])
		switch {
		case err != nil:
			return nil, err
		case inferred == nil:
			continue
		case name == "":
			return nil, errShape // no field has an empty name
		}
		s.fields = append(s.fields, field{name, inferred})
	}
	return s, nil
}

// inferArray takes the first item that is not null for all of them: they have to be of one kind.
func (x Expansion) inferArray(path string, n node) (*schema, error) {
	if len(n.items) == 0 {
		if x.EmptyArrays {
			return &schema{kind: arrayNode, item: &schema{kind: stringNode}}, nil
		}
		return nil, nil //nolint:nilnil // left out
	}
	var sample node
	for _, item := range n.items {
		if item.kind == nullNode {
			continue
		}
		if sample.kind == nullNode {
			sample = item
		}
		if item.kind != sample.kind {
			return nil, errShape
		}
	}
	var item *schema
	var err error
	if sample.kind == objectNode {
		item, err = x.inferItems(path, n.items)
	} else if item, err = x.infer("", sample); item == nil && err == nil {
		err = errShape
	}
	return &schema{kind: arrayNode, item: item}, err
}

// inferItems merges the schemas of the objects in an array.
func (x Expansion) inferItems(path string, items []node) (*schema, error) {
	var merged *schema
	for _, item := range items {
		if item.kind != objectNode {
			continue
		}
		s, err := x.inferObject(path, item)
		if err != nil {
			return nil, err
		}
		if merged == nil {
			merged = s
		} else if !merged.equal(s) {
			merged.merge(s)
		}
	}
	return merged, nil
}

// merge adds the fields that s has and m has not. Anything is better than a null.
func (m *schema) merge(s *schema) {
	m.required = true
	for _, f := range s.fields {
		i := slices.IndexFunc(m.fields, func(g field) bool { return g.name == f.name })
		switch {
		case i < 0:
			m.fields = append(m.fields, f)
		case m.fields[i].schema.kind == nullNode:
			m.fields[i].schema = f.schema
		}
	}
}

func (m *schema) equal(s *schema) bool {
	if m == nil || s == nil {
		return m == s
	}
	return m.kind == s.kind && m.name == s.name && m.item.equal(s.item) &&
		slices.EqualFunc(m.fields, s.fields, func(a, b field) bool { return a.name == b.name && a.schema.equal(b.schema) })
}

// append appends the schema without the brace that ends it.
func (m *schema) append(dst []byte) []byte {
	switch m.kind {
	case objectNode:
		dst = append(dst, `{"type":"struct","fields":[`...)
		for i, f := range m.fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(f.schema.append(dst), `,"field":`...)
			dst = append(AppendString(dst, []byte(f.name)), '}')
		}
		dst = appendBool(append(dst, `],"optional":`...), !m.required)
		if m.name != "" {
			dst = AppendString(append(dst, `,"name":`...), []byte(m.name))
		}
		return dst
	case arrayNode:
		dst = m.item.append(append(dst, `{"type":"array","items":`...))
		return append(dst, `},"optional":true`...)
	case nullNode:
		return Bytes.AppendSchema(dst, true)
	case boolNode:
		return Bool.AppendSchema(dst, true)
	case intNode:
		return Int32.AppendSchema(dst, true)
	case longNode:
		return Int64.AppendSchema(dst, true)
	case doubleNode:
		return Float64.AppendSchema(dst, true)
	default:
		return Text.AppendSchema(dst, true)
	}
}
