package connect

import "bytes"

// items splits an array of one dimension, as PostgreSQL prints it: {a,"b c",NULL}, with bounds of its own [2:3]={a,b}.
// An item that is NULL is nil.
func items(text []byte) ([][]byte, error) {
	if len(text) > 0 && text[0] == '[' {
		_, text, _ = bytes.Cut(text, []byte{'='})
	}
	if len(text) < 2 || text[0] != '{' || text[len(text)-1] != '}' {
		return nil, ErrValue
	}
	text = text[1 : len(text)-1]
	all := [][]byte{}
	for len(text) > 0 {
		item, rest, err := cutItem(text)
		if err != nil {
			return nil, err
		}
		all = append(all, item)
		text = rest
	}
	return all, nil
}

// cutItem reads an item, and the comma behind it.
func cutItem(text []byte) (item, rest []byte, err error) {
	quoted := text[0] == '"'
	i := 0
	if quoted {
		i++
	}
	item = []byte{}
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			item = append(item, text[i])
		case quoted && c == '"':
			i++
			return item, afterComma(text[i:]), nil
		case !quoted && c == ',':
			return nullable(item), text[i+1:], nil
		case !quoted && (c == '{' || c == '}'):
			return nil, nil, ErrValue // further dimensions
		default:
			item = append(item, c)
		}
	}
	return nullable(item), nil, nil
}

func nullable(item []byte) []byte {
	if string(item) == "NULL" {
		return nil
	}
	return item
}

func afterComma(text []byte) []byte {
	if len(text) > 0 {
		return text[1:]
	}
	return nil
}
