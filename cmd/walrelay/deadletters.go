package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/walrelay/walrelay/cdc"
)

type lettersCommand struct {
	List    lettersListCommand    `cmd:"" help:"List events that did not reach their topic."`
	Redrive lettersRedriveCommand `cmd:"" help:"Publish such events to their topic after all, beside the stream."`
}

type lettersListCommand struct {
	JSON bool `help:"Print a JSON array."`
	All  bool `help:"Those that were redriven, too."`
}

// letterLine is a dead letter as --json shows it.
type letterLine struct {
	Position   string     `json:"position"`
	EventID    string     `json:"event_id"`
	Table      string     `json:"table"`
	Topic      string     `json:"topic"` // that it was meant for
	Bytes      int64      `json:"bytes"` // of its record
	Reason     string     `json:"reason"`
	Action     string     `json:"action"`
	Follow     bool       `json:"follow"`
	RecordedAt time.Time  `json:"recorded_at"`
	RedrivenAt *time.Time `json:"redriven_at"`
	RedrivenBy string     `json:"redriven_by,omitempty"`
}

func newLetterLine(l *cdc.Letter) letterLine {
	line := letterLine{
		Position: l.Position.String(), EventID: l.EventID, Table: l.Table, Topic: l.Topic, Bytes: l.Size, Reason: l.Reason,
		Action: string(l.Action), Follow: l.Follow, RecordedAt: l.Recorded.UTC(), RedrivenBy: l.RedrivenBy,
	}
	if !l.Redriven.IsZero() {
		at := l.Redriven.UTC()
		line.RedrivenAt = &at
	}
	return line
}

// Run prints the letters of the stream, the oldest first.
func (c *lettersListCommand) Run(ctx context.Context, cmd *command) error {
	return cmd.withRegistry(ctx, "", func(registry *cdc.Registry, _ *cdc.Config) error {
		letters, err := registry.Letters(ctx, c.All)
		if err != nil {
			return err
		}
		lines := make([]letterLine, len(letters))
		for i := range letters {
			lines[i] = newLetterLine(&letters[i])
		}
		if c.JSON {
			encoder := json.NewEncoder(cmd.stdout)
			encoder.SetIndent("", "  ")
			return encoder.Encode(lines)
		}
		for _, line := range lines {
			if err := line.print(cmd); err != nil {
				return err
			}
		}
		return nil
	})
}

// print writes a letter as a line and an indented one, so that the first has columns.
func (l *letterLine) print(cmd *command) error {
	topic := l.Topic
	if topic == "" {
		topic = "(no topic)"
	}
	state := l.Action
	if l.RedrivenAt != nil {
		state += ", redriven " + l.RedrivenAt.Format(time.RFC3339) + " by " + l.RedrivenBy
	}
	_, err := fmt.Fprintf(cmd.stdout, "%s  %s  %q of %s to %s, %d bytes: %s\n    %s\n",
		l.Position, l.RecordedAt.Format(time.RFC3339), l.EventID, l.Table, topic, l.Bytes, state, l.Reason)
	return err
}
