package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/term"
)

const (
	frameInterval  = 250 * time.Millisecond
	sampleInterval = 500 * time.Millisecond
	// maxSamples is more than the cells of any terminal.
	maxSamples = 500
	// maxArrivals is more than its lines.
	maxArrivals = 100
)

// Control sequences of ECMA-48 terminals; the private ones are xterm's: the alternate screen, no line
// wrapping, no cursor.
const (
	enterScreen = "\x1b[?1049h\x1b[?7l\x1b[?25l\x1b[2J"
	leaveScreen = "\x1b[?25h\x1b[?7h\x1b[?1049l"
)

// scene is the state of the demo at one moment.
type scene struct {
	uptime     time.Duration
	open       time.Duration // how long the shop is open; 0: until Ctrl-C
	phase      phase
	postgres   string // version
	relay      string // state; empty: unknown
	broker     brokerState
	tally      tally
	lagSeconds *float64 // nil: unknown
	lagBytes   *int64   // nil: unknown
	p50, p99   time.Duration
	newest     arrival
}

// sample is what the curves are made of: rates are a second's.
type sample struct {
	in, out, inFlight, lag float64
}

// screen shows scenes: redrawn in place on a terminal, else one line a second.
type screen struct {
	out      io.Writer
	terminal bool
	colour   bool
	size     func() (width, height int)

	samples  []sample
	arrivals []arrival // newest first
	last     tally     // of the last sample
	sampled  time.Time
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out, colour: os.Getenv("NO_COLOR") == "", size: func() (int, int) { return 80, 24 }}
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return s
	}
	s.terminal = true
	s.size = func() (int, int) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil || width == 0 || height == 0 {
			return 80, 24
		}
		return width, height
	}
	return s
}

// run shows until ctx ends.
func (s *screen) run(ctx context.Context, look func(time.Time) scene) error {
	interval := time.Second
	if s.terminal {
		interval = frameInterval
		_, _ = io.WriteString(s.out, enterScreen)
		defer func() { _, _ = io.WriteString(s.out, leaveScreen) }()
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		now := time.Now()
		if err := s.show(look(now), now); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *screen) show(now scene, at time.Time) error {
	s.remember(now, at)
	text := s.line(now)
	if s.terminal {
		width, height := s.size()
		text = s.frame(now, width, height)
	}
	if _, err := io.WriteString(s.out, text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// remember adds to the curves and to the list of events. Of the events that arrive between two frames
// the list shows one: nobody could read them all.
func (s *screen) remember(now scene, at time.Time) {
	if now.newest.position != "" && (len(s.arrivals) == 0 || s.arrivals[0] != now.newest) {
		s.arrivals = slices.Insert(s.arrivals, 0, now.newest)
		s.arrivals = s.arrivals[:min(len(s.arrivals), maxArrivals)]
	}
	if s.sampled.IsZero() {
		s.sampled = at
		return
	}
	// A frame may come a little early.
	passed := at.Sub(s.sampled)
	if passed < sampleInterval-frameInterval/2 {
		return
	}
	taken := sample{
		in:       float64(now.tally.committed-s.last.committed) / passed.Seconds(),
		out:      float64(now.tally.delivered-s.last.delivered) / passed.Seconds(),
		inFlight: float64(now.tally.inFlight()),
		lag:      math.NaN(),
	}
	if now.lagSeconds != nil {
		taken.lag = *now.lagSeconds
	}
	s.samples = append(s.samples, taken)
	s.samples = s.samples[max(0, len(s.samples)-maxSamples):]
	s.last, s.sampled = now.tally, at
}

// rates are the means of the last second.
func (s *screen) rates() (in, out float64) {
	perSecond := 1
	if s.terminal {
		perSecond = int(time.Second / sampleInterval)
	}
	last := s.samples[max(0, len(s.samples)-perSecond):]
	for _, taken := range last {
		in += taken.in / float64(len(last))
		out += taken.out / float64(len(last))
	}
	return in, out
}

// curve is one value of every sample, and the highest of those that fit into so many cells.
func (s *screen) curve(cells int, pick func(sample) float64) (values []float64, top float64) {
	for _, taken := range s.samples[max(0, len(s.samples)-cells):] {
		v := pick(taken)
		values = append(values, v)
		if !math.IsNaN(v) {
			top = max(top, v)
		}
	}
	return values, top
}

// line is the scene in a line of text.
func (s *screen) line(now scene) string {
	in, out := s.rates()
	text := fmt.Sprintf("%5s  committed %d (%.0f/s)  delivered %d (%.0f/s)  in flight %d  lag %s  walrelay %s  broker %s",
		clock(now.uptime), now.tally.committed, in, now.tally.delivered, out, now.tally.inFlight(),
		now.lag(), now.relayState(), now.brokerState())
	return text + "\n"
}

// lag is both lags, where they are known.
func (now *scene) lag() string {
	text := "?"
	if now.lagSeconds != nil {
		text = seconds(*now.lagSeconds)
	}
	if now.lagBytes != nil {
		text += " " + size(*now.lagBytes)
	}
	return text
}

func (now *scene) relayState() string {
	if now.relay == "" {
		return "?"
	}
	return now.relay
}

func (now *scene) brokerState() string {
	switch {
	case now.broker.down > 0:
		return "DOWN"
	case now.broker.ours:
		return "up"
	default:
		return "yours"
	}
}
