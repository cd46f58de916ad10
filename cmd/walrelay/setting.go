package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// input is what a setting of any kind keeps of the text it was given. Reading a setting never fails:
// the fault is kept here and listed together with all others.
type input struct {
	// variable is the name WALRELAY_X; empty until Settings.declared has been called.
	variable string
	raw      string
	err      error
	secret   bool
}

func (in *input) given() *input { return in }

// shown is the text as it may appear in an error.
func (in *input) shown() string {
	if in.secret && in.raw != "" {
		return redacted
	}
	return in.raw
}

// kind is what the kinds of settings have in common.
type kind interface{ given() *input }

// Text is a setting taken as it is.
type Text struct {
	input
	Text string
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Text) UnmarshalText(b []byte) error {
	t.raw, t.Text = string(b), string(b)
	return nil
}

// Choice is a setting with a few legal values, which its choices tag lists.
type Choice struct {
	input
	Text string
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Choice) UnmarshalText(b []byte) error {
	c.raw, c.Text = string(b), string(b)
	return nil
}

// Bool is a setting that is true or false. As a flag it may stand alone.
type Bool struct {
	input
	Value bool
}

// IsBool implements kong.BoolMapperValue.
func (b *Bool) IsBool() bool { return true }

// Decode implements kong.BoolMapperValue.
func (b *Bool) Decode(ctx *kong.DecodeContext) error {
	b.raw = "true"
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		b.raw = fmt.Sprint(ctx.Scan.Pop().Value)
	}
	switch b.raw {
	case "true", "false":
		b.Value = b.raw == "true"
	default:
		b.err = errors.New("must be true or false")
	}
	return nil
}

// Int is a whole number, not negative.
type Int struct {
	input
	Value int
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *Int) UnmarshalText(b []byte) error {
	i.raw = string(b)
	n, err := strconv.ParseInt(i.raw, 10, 32)
	if err != nil || n < 0 {
		i.err = fmt.Errorf("must be a whole number from 0 to %d", math.MaxInt32)
	}
	i.Value = int(n)
	return nil
}

// Size is a number of bytes, with a unit or without: 16MiB, 1MB, 1000.
type Size struct {
	input
	Bytes int64
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(b []byte) error {
	s.raw = string(b)
	digits := strings.TrimRight(s.raw, "BKMGikb")
	unit, known := sizeUnit(s.raw[len(digits):])
	n, err := strconv.ParseInt(strings.TrimSuffix(digits, " "), 10, 64)
	if err != nil || !known || n < 0 || n > math.MaxInt64/unit {
		s.err = errors.New("must be a size in bytes, as in 1000, 1MB or 16MiB")
		return nil //nolint:nilerr // kept in s.err, so that every fault is listed
	}
	s.Bytes = n * unit
	return nil
}

func sizeUnit(name string) (bytes int64, known bool) {
	switch name {
	case "", "B":
		return 1, true
	case "kB", "KB":
		return 1e3, true
	case "MB":
		return 1e6, true
	case "GB":
		return 1e9, true
	case "KiB":
		return 1 << 10, true
	case "MiB":
		return 1 << 20, true
	case "GiB":
		return 1 << 30, true
	}
	return 1, false
}

// Duration is a time span in Go's syntax: 1m30s, 100ms.
type Duration struct {
	input
	Value time.Duration
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	d.raw = string(b)
	span, err := time.ParseDuration(d.raw)
	if err != nil || span < 0 {
		d.err = errors.New("must be a duration with its unit, as in 100ms, 30s or 1m30s")
	}
	d.Value = span
	return nil
}
