package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
)

type configCommand struct {
	Markdown bool `hidden:"" help:"Print the reference of all settings, docs/configuration.md."`
}

// Run prints the configuration even when it is wrong: the faults follow, and the exit code.
func (c *configCommand) Run(cmd *command) error {
	if c.Markdown {
		return writeMarkdown(cmd.stdout, cmd.declared)
	}
	err := cmd.validate(cmd.database, cmd.brokers)
	if writeErr := cmd.writeSettings(cmd.stdout); writeErr != nil {
		return fmt.Errorf("write the configuration: %w", writeErr)
	}
	return err
}

// writeSettings prints one line for each setting, in the order of their declaration.
func (c *command) writeSettings(w io.Writer) error {
	var b strings.Builder
	for _, d := range c.declared {
		in := d.value.given()
		text := in.shown()
		switch d.value {
		case &c.settings.DatabaseURL:
			if in.err == nil && (in.raw != "" || c.env["PGHOST"] != "" || c.env["PGSERVICE"] != "") {
				text = c.settings.shownDatabase()
			}
		case &c.settings.Stream:
			text = c.settings.StreamName()
		case &c.settings.InFlightBytes:
			if in.raw == "" {
				text = strconv.FormatInt(c.settings.window().Bytes>>20, 10) + "MiB"
			}
		}
		if strings.ContainsFunc(text, unicode.IsControl) {
			text = strconv.Quote(text)
		}
		b.WriteString(d.variable + "=" + text + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
