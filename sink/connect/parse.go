package connect

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
)

// errShape says that a document is none that Debezium's router expands.
var errShape = errors.New("the document has no schema")

// node is a value of a document. Objects keep the order of their members; of a member that is given twice the last
// value counts, in the place of the first.
type node struct {
	kind   nodeKind
	truth  bool
	text   string // of a string
	whole  int64
	double float64
	list   *members[node] // of an object, or the values of an array
}

type nodeKind uint8

const (
	nullNode nodeKind = iota
	stringNode
	boolNode
	intNode    // fits int32
	longNode   // fits int64
	doubleNode // has a fraction or an exponent
	bigNode    // a whole number beyond int64
	arrayNode
	objectNode
)

// A document beyond these stays a string, lest one row take the stack or the memory of the process.
const (
	maxDepth  = 1000 // of objects and arrays; Jackson's own (StreamReadConstraints.DEFAULT_MAX_DEPTH)
	maxValues = 500_000
)

// parser reads a document.
type parser struct {
	*json.Decoder
	depth, values int
}

// parse reads the first value of text; what comes behind it is passed over, as Jackson's readTree does.
func parse(text []byte) (node, error) {
	p := parser{Decoder: json.NewDecoder(bytes.NewReader(text))}
	p.UseNumber()
	return p.value()
}

func (p *parser) value() (node, error) {
	token, err := p.Token()
	if err != nil {
		return node{}, err
	}
	if p.values++; p.values > maxValues {
		return node{}, errShape
	}
	switch v := token.(type) {
	case string:
		return node{kind: stringNode, text: v}, nil
	case bool:
		return node{kind: boolNode, truth: v}, nil
	case json.Number:
		return number(string(v)), nil
	case json.Delim:
		if p.depth++; p.depth > maxDepth {
			return node{}, errShape
		}
		defer func() { p.depth-- }()
		if v == '[' {
			return p.array()
		}
		return p.object()
	}
	return node{}, nil
}

func (p *parser) array() (node, error) {
	n := node{kind: arrayNode, list: &members[node]{}}
	for p.More() {
		item, err := p.value()
		if err != nil {
			return n, err
		}
		n.list.values = append(n.list.values, item)
	}
	_, err := p.Token()
	return n, err
}

func (p *parser) object() (node, error) {
	n := node{kind: objectNode, list: &members[node]{}}
	for p.More() {
		token, err := p.Token()
		if err != nil {
			return n, err
		}
		name, _ := token.(string)
		value, err := p.value()
		if err != nil {
			return n, err
		}
		if i := n.list.find(name); i >= 0 {
			n.list.values[i] = value
		} else {
			n.list.add(name, value)
		}
	}
	_, err := p.Token()
	return n, err
}

func number(text string) node {
	whole, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err == nil && whole >= math.MinInt32 && whole <= math.MaxInt32:
		return node{kind: intNode, whole: whole}
	case err == nil:
		return node{kind: longNode, whole: whole}
	}
	for _, c := range text {
		if c == '.' || c == 'e' || c == 'E' {
			double, _ := strconv.ParseFloat(text, 64) // beyond the range: infinite, as in Java
			return node{kind: doubleNode, double: double}
		}
	}
	return node{kind: bigNode}
}
