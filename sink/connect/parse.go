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
	text   string // of a string
	whole  int64
	double float64
	truth  bool
	items  []node // of an array, or the values of an object
	names  []string
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

// parse reads the first value of text; what comes behind it is passed over, as Jackson's readTree does.
func parse(text []byte) (node, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return parseValue(d)
}

func parseValue(d *json.Decoder) (node, error) {
	token, err := d.Token()
	if err != nil {
		return node{}, err
	}
	switch v := token.(type) {
	case string:
		return node{kind: stringNode, text: v}, nil
	case bool:
		return node{kind: boolNode, truth: v}, nil
	case json.Number:
		return number(string(v)), nil
	case json.Delim:
		if v == '[' {
			return parseArray(d)
		}
		return parseObject(d)
	}
	return node{}, nil
}

func parseArray(d *json.Decoder) (node, error) {
	n := node{kind: arrayNode}
	for d.More() {
		item, err := parseValue(d)
		if err != nil {
			return n, err
		}
		n.items = append(n.items, item)
	}
	_, err := d.Token()
	return n, err
}

func parseObject(d *json.Decoder) (node, error) {
	n := node{kind: objectNode}
	at := map[string]int{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return n, err
		}
		name, _ := token.(string)
		value, err := parseValue(d)
		if err != nil {
			return n, err
		}
		if i, twice := at[name]; twice {
			n.items[i] = value
			continue
		}
		at[name] = len(n.items)
		n.names, n.items = append(n.names, name), append(n.items, value)
	}
	_, err := d.Token()
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
