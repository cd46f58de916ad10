package decoder

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDecoder_ScratchIsBounded shows that one huge payload does not stay in memory.
func TestDecoder_ScratchIsBounded(t *testing.T) {
	t.Parallel()
	d := New(Config{})
	rel := &relation{Relation: Relation{Columns: []Column{{Name: "payload", Type: byteaOID}}}}
	rel.bind(&Mapping{Payload: "payload"})
	payload := func(n int) []byte { return []byte(`\x` + hex.EncodeToString(make([]byte, n))) }

	d.mapColumn(rel, rel.fields[0], valueText, payload(scratchKept+1))
	require.Len(t, d.event.Payload, scratchKept+1)
	d.mapColumn(rel, rel.fields[0], valueText, payload(1))
	require.Len(t, d.event.Payload, 1)
	require.LessOrEqual(t, cap(d.scratch), scratchKept)
	require.NoError(t, d.event.Fault)
}
