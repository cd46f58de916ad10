package connect

import "slices"

// schema is what Debezium's router infers of a value. Those of scalars are shared.
type schema struct {
	kind     nodeKind // nullNode stands for optional bytes
	name     string   // of an object
	required bool     // of objects in an array that differ
	fields   members[*schema]
	item     *schema
}

// Expansion says how a payload is expanded, as table.expand.json.payload does.
type Expansion struct {
	// Nulls keeps members that are null (table.json.payload.null.behavior=optional_bytes).
	Nulls bool
	// EmptyArrays keeps members that are empty arrays (table.json.payload.empty.array.behavior=optional_string).
	EmptyArrays bool
}

// inference makes the schema of one document.
type inference struct {
	Expansion
	scalars [bigNode]schema // by kind
	left    int             // bytes that names of objects may take still
}

// infer returns nil for what is left out. path names the objects.
func (x *inference) infer(path string, n *node) (*schema, error) {
	switch n.kind {
	case nullNode:
		if x.Nulls {
			return x.scalar(nullNode), nil
		}
		return nil, nil //nolint:nilnil // left out
	case arrayNode:
		return x.inferArray(path, n)
	case objectNode:
		return x.inferObject(path, n)
	case bigNode:
		return nil, errShape // a double by schema, and none by value
	default:
		return x.scalar(n.kind), nil
	}
}

func (x *inference) scalar(kind nodeKind) *schema {
	x.scalars[kind].kind = kind
	return &x.scalars[kind]
}

func (x *inference) inferObject(path string, n *node) (*schema, error) {
	s := &schema{kind: objectNode, name: path}
	for i, name := range n.list.names {
		value := &n.list.values[i]
		below := ""
		if value.list != nil { // the names of others are not asked for
			below = x.below(path, name)
		}
		inferred, err := x.infer(below, value)
		switch {
		case err != nil:
			return nil, err
		case inferred == nil:
			continue
		case name == "", x.left < 0: // no field has an empty name
			return nil, errShape
		}
		s.fields.add(name, inferred)
	}
	return s, nil
}

// below is the path of a member. Within each other, paths grow with the square of their number.
func (x *inference) below(path, name string) string {
	if path != "" {
		name = path + "." + name
	}
	x.left -= len(name)
	return name
}

// inferArray takes the first item that is not null for all of them: they have to be of one kind.
func (x *inference) inferArray(path string, n *node) (*schema, error) {
	if len(n.list.values) == 0 {
		if x.EmptyArrays {
			return &schema{kind: arrayNode, item: x.scalar(stringNode)}, nil
		}
		return nil, nil //nolint:nilnil // left out
	}
	sample := &node{}
	for i := range n.list.values {
		item := &n.list.values[i]
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
		item, err = x.inferItems(path, n.list.values)
	} else if item, err = x.infer("", sample); item == nil && err == nil {
		err = errShape
	}
	return &schema{kind: arrayNode, item: item}, err
}

// inferItems merges the schemas of the objects in an array.
func (x *inference) inferItems(path string, items []node) (*schema, error) {
	var merged *schema
	for i := range items {
		if items[i].kind != objectNode {
			continue
		}
		s, err := x.inferObject(path, &items[i])
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
	for i, name := range s.fields.names {
		switch at := m.fields.find(name); {
		case at < 0:
			m.fields.add(name, s.fields.values[i])
		case m.fields.values[at].kind == nullNode:
			m.fields.values[at] = s.fields.values[i]
		}
	}
}

func (m *schema) equal(s *schema) bool {
	if m == nil || s == nil {
		return m == s
	}
	return m.kind == s.kind && m.name == s.name && m.item.equal(s.item) &&
		slices.Equal(m.fields.names, s.fields.names) &&
		slices.EqualFunc(m.fields.values, s.fields.values, (*schema).equal)
}

// append appends the schema without the brace that ends it.
func (m *schema) append(dst []byte) []byte {
	switch m.kind {
	case objectNode:
		dst = append(dst, `{"type":"struct","fields":[`...)
		for i, name := range m.fields.names {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(m.fields.values[i].append(dst), `,"field":`...)
			dst = append(AppendString(dst, []byte(name)), '}')
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
		return Type{Kind: Bytes}.AppendSchema(dst, true)
	case boolNode:
		return Type{Kind: Bool}.AppendSchema(dst, true)
	case intNode:
		return Type{Kind: Int32}.AppendSchema(dst, true)
	case longNode:
		return Type{Kind: Int64}.AppendSchema(dst, true)
	case doubleNode:
		return Type{Kind: Float64}.AppendSchema(dst, true)
	default:
		return Type{Kind: Text}.AppendSchema(dst, true)
	}
}
