package decoder

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Additional columns are read where they are; one that is missing is a fault if it has to be there.
func TestRows_Extra(t *testing.T) {
	t.Parallel()
	m := &Mapping{
		Schema: "s", Table: "t", ID: "id", Key: "k", Payload: "p", Route: []string{"kind"},
		Extra: []string{"a", "none", "kind", "p"},
	}
	columns := []Column{{Name: "a"}, {Name: "id"}, {Name: "k"}, {Name: "kind"}, {Name: "p", Type: byteaOID}}
	values := [][]byte{[]byte("A"), []byte("1"), nil, []byte("order"), []byte(`\x41`)}
	ev := NewRows(m, columns).Event(values)
	require.NoError(t, ev.Fault)
	require.Equal(t, [][]byte{[]byte("A"), nil, []byte("order"), []byte(`\x41`)}, ev.Extra)
	require.Equal(t, [][]byte{[]byte("order")}, ev.Route)
	require.Equal(t, "A", string(ev.Payload))
	require.Equal(t, columns, ev.Relation.Columns)

	m.ExtraRequired = true
	require.EqualError(t, NewRows(m, columns).Event(values).Fault, "column none of s.t is missing")
}
