package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress shows how far something long is: a bar on a terminal, elsewhere a line now and then.
type progress struct {
	w        io.Writer
	name     string
	terminal bool
	began    time.Time
	first    int64 // done when it began
	shown    time.Time
	wide     int // columns of the bar that stands there
}

// progressEvery is how often a line is written where there is no terminal.
const progressEvery = 10 * time.Second

func newProgress(w io.Writer, name string) *progress {
	return &progress{w: w, name: name, first: -1, terminal: onTerminal(w)}
}

// show writes how much is done. The total is an estimate: it may be passed.
func (p *progress) show(done, total int64) {
	now := time.Now()
	if p.first < 0 {
		p.first, p.began = done, now
	}
	if !p.terminal && now.Sub(p.shown) < progressEvery && !p.shown.IsZero() {
		return
	}
	p.shown = now
	text := p.text(done, max(total, done), now.Sub(p.began))
	if !p.terminal {
		_, _ = fmt.Fprintln(p.w, text)
		return
	}
	_, _ = fmt.Fprintf(p.w, "\r%-*s", p.wide, text)
	p.wide = len([]rune(text))
}

func (p *progress) text(done, total int64, took time.Duration) string {
	const width = 30
	share := 1.0
	if total > 0 {
		share = float64(done) / float64(total)
	}
	text := fmt.Sprintf("%s: %d of about %d rows (%.0f %%)", p.name, done, total, share*100)
	if seconds := took.Seconds(); seconds >= 1 && done > p.first {
		rate := float64(done-p.first) / seconds
		left := time.Duration(float64(total-done) / rate * float64(time.Second))
		text += fmt.Sprintf(", %.0f/s, %s left", rate, left.Round(time.Second))
	}
	if !p.terminal {
		return text
	}
	full := int(share * width)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "] " + text
}

// line writes a line of its own.
func (p *progress) line(text string) {
	p.end()
	_, _ = fmt.Fprintln(p.w, text)
}

// end leaves the bar as it stands.
func (p *progress) end() {
	if p.wide > 0 {
		_, _ = fmt.Fprintln(p.w)
		p.wide = 0
	}
}
