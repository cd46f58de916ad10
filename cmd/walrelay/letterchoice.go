package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/walrelay/walrelay/cdc"
	"github.com/walrelay/walrelay/checkpoint"
	"github.com/walrelay/walrelay/sink"
)

func (c *lettersRedriveCommand) checkTo(s *Settings) error {
	switch {
	case c.To == "":
		return nil
	case !sink.LegalTopic(c.To):
		return errors.New("--to " + topicRule)
	case c.To == s.DeadLetterTopic.Text || c.To == s.StateTopic.Text:
		return fmt.Errorf("--to must not be %s or %s", s.DeadLetterTopic.variable, s.StateTopic.variable)
	}
	return nil
}

// choice is how letters are chosen from those that are recorded.
func (c *lettersRedriveCommand) choice() (func([]cdc.Letter) ([]cdc.Letter, error), error) {
	filtered := c.All || c.MeantFor != "" || c.Reason != ""
	switch {
	case len(c.Position) > 0 && filtered:
		return nil, errors.New("positions and --all, --meant-for or --reason exclude each other")
	case len(c.Position) == 0 && !filtered:
		return nil, errors.New("say which letters: positions, --all, --meant-for or --reason")
	case filtered:
		return func(letters []cdc.Letter) ([]cdc.Letter, error) {
			return slices.DeleteFunc(letters, func(l cdc.Letter) bool { return !c.matches(&l) }), nil
		}, nil
	}
	wanted := map[checkpoint.Position]bool{}
	for _, text := range c.Position {
		p, err := checkpoint.ParsePosition(text)
		if err != nil {
			return nil, err
		}
		wanted[p] = true
	}
	return func(letters []cdc.Letter) ([]cdc.Letter, error) {
		var chosen []cdc.Letter
		for _, l := range letters {
			if wanted[l.Position] && !l.Redriven.IsZero() {
				return nil, fmt.Errorf("%s was redriven at %s by %s", l.Position,
					l.Redriven.UTC().Format(time.RFC3339), l.RedrivenBy)
			}
			if wanted[l.Position] {
				chosen = append(chosen, l)
				delete(wanted, l.Position)
			}
		}
		for p := range wanted {
			return nil, fmt.Errorf("there is no letter at %s; `walrelay deadletters list` shows them", p)
		}
		return chosen, nil
	}, nil
}

func (c *lettersRedriveCommand) matches(l *cdc.Letter) bool {
	return l.Redriven.IsZero() && (c.Skipped || l.Action != checkpoint.Skipped) &&
		(c.MeantFor == "" || l.Topic == c.MeantFor) && strings.Contains(l.Reason, c.Reason)
}
