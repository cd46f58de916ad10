package cdc

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/decoder"
)

func validConfig() *Config {
	return &Config{
		ConnString: "postgres://u:hunter2@localhost/db", Stream: "orders", Slot: "1slot", Publication: "My-Pub",
		Mappings: []decoder.Mapping{{Schema: "public", Table: `Out"box`, ID: "id", Payload: "payload"}},
		Routing:  "r", Delivery: "at-least-once", ConnectTimeout: time.Second, StatusInterval: time.Second,
		ReceiveTimeout: time.Second, ShutdownTimeout: time.Second, BackoffMin: time.Second, BackoffMax: time.Second,
		Window: checkpoint.Window{Events: 1, Bytes: 1}, MaxMessageBytes: 1, Logger: zap.NewNop(),
	}
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	require.NoError(t, validConfig().Validate())
	for name, test := range map[string]struct {
		set   func(*Config)
		field string
	}{
		"slot with capitals":    {func(c *Config) { c.Slot = "MySlot" }, "Slot"},
		"slot that is SQL":      {func(c *Config) { c.Slot = `x"; DROP TABLE outbox; --` }, "Slot"},
		"slot too long":         {func(c *Config) { c.Slot = fmt.Sprintf("%064d", 0) }, "Slot"},
		"no publication":        {func(c *Config) { c.Publication = "" }, "Publication"},
		"publication with NUL":  {func(c *Config) { c.Publication = "a\x00b" }, "Publication"},
		"stream with space":     {func(c *Config) { c.Stream = "a b" }, "Stream"},
		"no table":              {func(c *Config) { c.Mappings = nil }, "Mappings"},
		"table twice":           {func(c *Config) { c.Mappings = append(c.Mappings, c.Mappings[0]) }, "Mappings"},
		"no id column":          {func(c *Config) { c.Mappings[0].ID = "" }, "Mappings"},
		"window":                {func(c *Config) { c.Window.Bytes = 0 }, "Window"},
		"backoff":               {func(c *Config) { c.BackoffMax = 1 }, "BackoffMax"},
		"walsender timeout":     {func(c *Config) { c.WALSenderTimeout = 2 * time.Second }, "WALSenderTimeout"},
		"no logger":             {func(c *Config) { c.Logger = nil }, "Logger"},
		"bad connection string": {func(c *Config) { c.ConnString = "postgres://u:hunter2@h:x/db" }, "ConnString"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := validConfig()
			test.set(cfg)
			err := cfg.Validate()
			var fault *FieldError
			require.ErrorAs(t, err, &fault)
			require.Equal(t, test.field, fault.Field)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestConfig_ValidateNamesEveryFault(t *testing.T) {
	t.Parallel()
	joined, ok := (&Config{}).Validate().(interface{ Unwrap() []error })
	require.True(t, ok)
	fields := map[string]bool{}
	for _, err := range joined.Unwrap() {
		var fault *FieldError
		require.True(t, errors.As(err, &fault))
		fields[fault.Field] = true
	}
	require.Len(t, fields, 14)
}

func TestSecret_NeverShows(t *testing.T) {
	t.Parallel()
	cfg := validConfig()
	document, err := json.Marshal(struct{ S Secret }{cfg.ConnString})
	require.NoError(t, err)
	for _, text := range []string{
		fmt.Sprint(cfg.ConnString), fmt.Sprintf("%#v", cfg.ConnString), fmt.Sprintf("%q", cfg.ConnString),
		fmt.Sprintf("%v %+v", *cfg, cfg), string(document),
	} {
		require.NotContains(t, text, "hunter2")
	}
}
