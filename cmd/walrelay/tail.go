package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/sink"
)

type tailCommand struct {
	Topic   string `name:"only-topic" help:"Only events of this topic."`
	Type    string `name:"only-type" help:"Only events of this type."`
	Limit   int    `help:"End after so many events; 0: go on."`
	Payload bool   `help:"Print keys, values and the values of headers too."`
	JSON    bool   `help:"Print one JSON document a line."`
}

// errEnough ends a tail that has shown as many events as it was asked for.
var errEnough = errors.New("enough")

// Run prints events as they would be published, from now on.
func (c *tailCommand) Run(ctx context.Context, cmd *command) error {
	config, err := cmd.streamConfig()
	if err != nil {
		return err
	}
	sinkConfig, err := cmd.settings.sinkConfig(zap.NewNop())
	if err != nil {
		return err
	}
	tail, err := cdc.OpenTail(ctx, config)
	if err != nil {
		return stopped(ctx, err)
	}
	defer tail.Close(context.WithoutCancel(ctx))
	_, _ = fmt.Fprintf(cmd.stderr, "transactions that commit after %s; nothing is published or confirmed\n", tail.Start())
	preview, shown := sink.NewPreview(&sinkConfig), 0
	err = tail.Read(ctx, func(ev *decoder.Event) error {
		record := preview.Record(ev)
		if c.Topic != "" && record.Topic != c.Topic || c.Type != "" && string(ev.Type) != c.Type {
			return nil
		}
		if err := c.print(cmd.stdout, newTailed(ev, &record, c.Payload)); err != nil {
			return err
		}
		if shown++; shown == c.Limit {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return stopped(ctx, err)
}

// stopped is nil for an error that comes of the user's wish to stop.
func stopped(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSignal) {
		return nil
	}
	return err
}

// tailed is an event as it is printed. What of it belongs to the payload is only there when asked for.
type tailed struct {
	Position  string       `json:"position"`
	Committed time.Time    `json:"committed"`
	Table     string       `json:"table"`
	Topic     string       `json:"topic"`
	ID        string       `json:"id"`
	Type      string       `json:"type,omitempty"`
	Size      int          `json:"size"` // bytes of a batch of its own
	Fault     string       `json:"fault,omitempty"`
	Key       *content     `json:"key,omitempty"`
	Value     *content     `json:"value,omitempty"`
	Headers   []tailHeader `json:"headers"`
}

type tailHeader struct {
	Name  string   `json:"name"`
	Value *content `json:"value,omitempty"`
}

func newTailed(ev *decoder.Event, record *sink.Record, payload bool) *tailed {
	t := &tailed{
		Position: ev.Position.String(), Committed: ev.CommitTime, Table: ev.Mapping.Name(), Topic: record.Topic,
		ID: string(ev.ID), Type: string(ev.Type), Size: record.Size, Headers: []tailHeader{},
	}
	if record.Fault != nil {
		t.Fault = record.Fault.Error()
	}
	for _, h := range record.Headers {
		header := tailHeader{Name: h.Name}
		if payload {
			header.Value = &content{h.Value}
		}
		t.Headers = append(t.Headers, header)
	}
	if payload {
		t.Key, t.Value = &content{record.Key}, &content{record.Value}
	}
	return t
}

func (c *tailCommand) print(w io.Writer, t *tailed) error {
	var b bytes.Buffer
	if c.JSON {
		if err := json.NewEncoder(&b).Encode(t); err != nil {
			return fmt.Errorf("print event: %w", err)
		}
	} else {
		t.lines(&b)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// lines is the event for people: one line, and one for each part of the payload.
func (t *tailed) lines(b *bytes.Buffer) {
	names := make([]string, len(t.Headers))
	for i, h := range t.Headers {
		names[i] = h.Name
	}
	topic := t.Topic
	if topic == "" {
		topic = "(no topic)"
	}
	fmt.Fprintf(b, "%s %s %s", t.Committed.UTC().Format("2006-01-02T15:04:05.000Z"), t.Position, topic)
	if t.Type != "" {
		fmt.Fprintf(b, " type=%s", printable(t.Type))
	}
	fmt.Fprintf(b, " id=%s size=%d headers=%s", printable(t.ID), t.Size, printable(strings.Join(names, ",")))
	if t.Fault != "" {
		fmt.Fprintf(b, " FAULT: %s", t.Fault)
	}
	b.WriteByte('\n')
	if t.Key == nil {
		return
	}
	fmt.Fprintf(b, "    key    %s\n    value  %s\n", t.Key, t.Value)
	for _, h := range t.Headers {
		fmt.Fprintf(b, "    header %s: %s\n", printable(h.Name), h.Value)
	}
}

// printable keeps what a row holds from steering the terminal.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", text)
	}
	return text
}

// content is what a record carries: text as it is, and anything else in base64.
type content struct{ bytes []byte }

// String is for people.
func (c *content) String() string {
	switch {
	case c.bytes == nil:
		return "null"
	case utf8.Valid(c.bytes):
		return printable(string(c.bytes))
	default:
		return "base64 " + base64.StdEncoding.EncodeToString(c.bytes)
	}
}

// MarshalJSON writes null, a string, or {"base64": …}.
func (c *content) MarshalJSON() ([]byte, error) {
	switch {
	case c.bytes == nil:
		return []byte("null"), nil
	case utf8.Valid(c.bytes):
		return json.Marshal(string(c.bytes))
	default:
		return json.Marshal(map[string][]byte{"base64": c.bytes})
	}
}
