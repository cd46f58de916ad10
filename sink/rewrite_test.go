package sink

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/decoder"
)

func TestTemplate_Rewrite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ regex, replacement, name, want string }{
		{`(?<routedByValue>.*)`, `outbox.event.${routedByValue}`, "order", "outbox.event.order"},
		{`ord(.*)`, `x-$1`, "invoice", "invoice"},
		{`ord(.*)`, `x-$1`, "my-order", "my-order"}, // matches as a whole or not at all
		{`a|ab`, `x`, "ab", "xb"},                   // but what is replaced is the first match, as in Java
		{`(a)(b)?(.*)`, `$3$2$1`, "ac", "ca"},
		{`(.*)`, `$10\$\\`, "v", `v0$\`},
		{`(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)`, `$10$1`, "abcdefghij", "ja"},
	} {
		template, err := ParseTemplate("{kind}")
		require.NoError(t, err)
		require.NoError(t, template.Rewrite(c.regex, c.replacement))
		cfg, ev := Config{Topic: template}, &decoder.Event{Mapping: table, Route: [][]byte{[]byte(c.name)}}
		name, _ := cfg.appendTopic([]byte("kept:"), ev)
		require.Equal(t, "kept:"+c.want, string(name))
	}
	for _, wrong := range [][2]string{
		{`(`, `x`},
		{`(?=x)y`, `x`},
		{`.*`, `$1`},
		{`.*`, `${n}`},
		{`(?<n>.*)`, `${n`},
		{`.*`, `$`},
		{`.*`, `\`},
		{`.*`, `$x`},
	} {
		template, err := ParseTemplate("{kind}")
		require.NoError(t, err)
		require.Error(t, template.Rewrite(wrong[0], wrong[1]), wrong)
	}
}
