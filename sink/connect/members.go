package connect

import "slices"

// members are named values in order, as an object has them, or values alone.
type members[T any] struct {
	names  []string
	values []T
	at     map[string]int // indexes by name; nil while there are few
}

// fewNames is up to how many names are compared one after another.
const fewNames = 16

// find returns the index of a name, -1 if there is none.
func (m *members[T]) find(name string) int {
	if m.at == nil {
		return slices.Index(m.names, name)
	}
	if i, ok := m.at[name]; ok {
		return i
	}
	return -1
}

// add appends a value under a name that there is none of.
func (m *members[T]) add(name string, value T) {
	m.names, m.values = append(m.names, name), append(m.values, value)
	switch {
	case m.at != nil:
		m.at[name] = len(m.names) - 1
	case len(m.names) > fewNames:
		m.at = make(map[string]int, 2*len(m.names))
		for i, name := range m.names {
			m.at[name] = i
		}
	}
}
