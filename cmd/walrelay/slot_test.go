package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/cdc"
)

func TestAmount(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{
		0: "0 bytes", 1023: "1023 bytes", 1024: "1.0 KiB (1024 bytes)", 1536 << 20: "1.5 GiB (1610612736 bytes)",
		5 << 50: "5120.0 TiB (5629499534213120 bytes)",
	} {
		require.Equal(t, want, size(bytes))
	}
}

func TestParseLSN(t *testing.T) {
	t.Parallel()
	lsn, err := parseLSN("16/b374d848")
	require.NoError(t, err)
	require.EqualValues(t, 0x16B374D848, lsn)
	for _, text := range []string{"", "current", "0/0", "0/100000000", "16B374D848", " 1/1", "1/1 ", "-1/1"} {
		_, err := parseLSN(text)
		require.Error(t, err, text)
	}
}

func TestStatusView_Judge(t *testing.T) {
	t.Parallel()
	pause := &cdc.Pause{By: "me"}
	holder := &holderView{PID: 1}
	slot := slotView{Exists: true}
	for want, v := range map[string]statusView{
		"lost":         {Slot: slotView{Exists: true, Lost: true}, Holder: holder, paused: pause},
		"stuck":        {Slot: slot, Holder: holder, Instance: &instanceAnswer{State: "stuck"}},
		"pausing":      {Slot: slot, Holder: holder, paused: pause},
		"paused":       {Slot: slot, paused: pause, Instance: &instanceAnswer{State: "paused"}},
		"active":       {Slot: slot, Holder: holder, Instance: &instanceAnswer{State: "standby"}},
		"inactive":     {Slot: slot, Epoch: 1},
		"without slot": {Epoch: 1},
		"new":          {},
	} {
		v.judge()
		require.Equal(t, want, v.State)
	}
}

func TestContent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bytes        []byte
		people, json string
	}{
		{nil, "null", "null"},
		{[]byte{}, "", `""`},
		{[]byte("é 1"), "é 1", `"é 1"`},
		{[]byte("\x1b[2J"), `"\x1b[2J"`, `"\u001b[2J"`},
		{[]byte{0xff}, "base64 /w==", `{"base64":"/w=="}`},
	} {
		shown := &content{c.bytes}
		require.Equal(t, c.people, shown.String())
		document, err := shown.MarshalJSON()
		require.NoError(t, err)
		require.Equal(t, c.json, string(document))
	}
}
