package main

import (
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Keys of log fields, the same in all packages.
const (
	keyStream   = "stream"
	keySlot     = "slot"
	keyVersion  = "version"
	keyCause    = "cause"
	keyPosition = "position"
)

// newLogger builds the process's logger; packages get it injected, named after them. Every line names the
// stream and the slot, so that the logs of several relays may be mixed.
func newLogger(s *Settings, w io.Writer) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(s.LogLevel.Text)
	if err != nil {
		return nil, fmt.Errorf("read the log level: %w", err)
	}
	keys := zap.NewProductionEncoderConfig()
	keys.TimeKey, keys.MessageKey = "time", "message"
	keys.EncodeTime = func(t time.Time, enc zapcore.PrimitiveArrayEncoder) {
		enc.AppendString(t.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
	}
	keys.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(keys)
	if s.LogFormat.Text == "console" {
		encoder = zapcore.NewConsoleEncoder(keys)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level)).
		With(zap.String(keyStream, s.StreamName()), zap.String(keySlot, s.Slot.Text)), nil
}
