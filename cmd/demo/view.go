package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// style is the parameters of an SGR sequence: the sixteen colours that every terminal has.
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "1;31"
	green  style = "32"
	yellow style = "33"
	blue   style = "34"
	violet style = "35"
	cyan   style = "36"
	alarm  style = "1;97;41"
	title  style = "1;97;44"
)

// span is text in one style, line a row of the screen.
type (
	span struct {
		style style
		text  string
	}
	line []span
)

func (l line) width() int {
	n := 0
	for _, s := range l {
		n += utf8.RuneCountInString(s.text)
	}
	return n
}

// and appends text.
func (l line) and(st style, format string, args ...any) line {
	return append(l, span{st, fmt.Sprintf(format, args...)})
}

// to appends spaces up to a column, at least one unless the line is empty.
func (l line) to(column int) line {
	gap := column - l.width()
	if len(l) > 0 {
		gap = max(gap, 1)
	}
	return append(l, span{plain, strings.Repeat(" ", max(gap, 0))})
}

// draw cuts the line at a width.
func (l line) draw(b *strings.Builder, width int, colour bool) {
	for _, s := range l {
		text := []rune(s.text)
		text = text[:min(len(text), width)]
		width -= len(text)
		if !colour || s.style == plain {
			b.WriteString(string(text))
			continue
		}
		fmt.Fprintf(b, "\x1b[%sm%s\x1b[0m", s.style, string(text))
	}
}

// narrow is the width below which there is no room for curves and columns.
const narrow = 64

// frame draws the whole screen: every line is cleared behind its text, and so is what lies below.
func (s *screen) frame(now scene, width, height int) string {
	lines := s.lines(now, width, height)
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		l.draw(&b, width, s.colour)
		b.WriteString("\x1b[K")
	}
	b.WriteString("\x1b[J")
	return b.String()
}

// lines lays the screen out; there are never more of them than its height.
func (s *screen) lines(now scene, width, height int) []line {
	head := []line{s.title(now, width), {}}
	head = append(head, s.pipeline(now, width)...)
	head = append(head, line{})
	head = append(head, s.curves(now, width)...)
	head = append(head, line{})
	head = append(head, verdict(now, width)...)
	foot := []line{{}, message(now)}
	if room := height - len(head) - len(foot) - 2; room > 0 {
		head = append(head, line{})
		head = append(head, s.events(width, room)...)
	}
	// On a low screen the message matters more than what does not fit.
	head = head[:max(0, min(len(head), height-len(foot)))]
	all := slices.Concat(head, foot)
	return all[max(0, len(all)-height):]
}

func (s *screen) title(now scene, width int) line {
	right := "up " + clock(now.uptime)
	if now.open > 0 {
		right += " of " + clock(now.open)
	}
	right += "   Ctrl-C ends it "
	l := line{}.and(title, " walrelay   every committed event reaches Kafka ")
	if gap := width - l.width() - len(right); gap > 0 {
		return l.and(title, "%s", strings.Repeat(" ", gap)).and(title, "%s", right)
	}
	return line{}.and(title, "%-*s", width, " walrelay   up "+clock(now.uptime))
}

// node is a station on the way of an event.
type node struct {
	name  string
	state string
	style style
}

// pipeline shows the stations and their states.
func (s *screen) pipeline(now scene, width int) []line {
	in, out := s.rates()
	relay := node{"walrelay", now.relayState(), green}
	if now.relay != "streaming" {
		relay.style = yellow
	}
	broker := node{"Kafka", now.brokerState(), green}
	if now.broker.down > 0 {
		broker.state, broker.style = "DOWN "+seconds(now.broker.down.Seconds()), red
	}
	shop := node{"shop", fmt.Sprintf("%.0f/s", in), cyan}
	if now.phase != shopOpen {
		shop.state, shop.style = "closed", dim
	}
	nodes := []node{
		shop, {"PostgreSQL", now.postgres, green}, relay, broker, {"consumer", fmt.Sprintf("%.0f/s", out), green},
	}
	if width < narrow {
		return []line{line{}.and(dim, "  walrelay ").and(relay.style, "%s", relay.state).
			and(dim, "  Kafka ").and(broker.style, "%s", broker.state)}
	}
	const column, indent = 12, 2
	arrow := (min(width, 100) - indent - len(nodes)*column) / (len(nodes) - 1)
	names, states := line{}.to(indent), line{}.to(indent)
	for i, n := range nodes {
		at := indent + i*(column+arrow)
		names = names.to(at).and(bold, "%s", n.name)
		states = states.to(at).and(n.style, "● %s", n.state)
		if i < len(nodes)-1 {
			names = names.to(at+column-1).and(dim, "%s▶", strings.Repeat("─", max(arrow-1, 0)))
		}
	}
	return []line{names, states}
}

// curves shows the numbers that move and how they came about.
func (s *screen) curves(now scene, width int) []line {
	const left, right = 26, 12
	cells := max(0, min(width-left-right, maxSamples))
	rate := func(perSecond float64) string { return fmt.Sprintf("%.0f/s", perSecond) }
	in, out := s.rates()
	ins, topIn := s.curve(cells, func(v sample) float64 { return v.in })
	outs, _ := s.curve(cells, func(v sample) float64 { return v.out })
	flying, topFlying := s.curve(cells, func(v sample) float64 { return v.inFlight })
	lags, topLag := s.curve(cells, func(v sample) float64 { return v.lag })
	lagSeconds, lagBytes := "?", "?"
	if now.lagSeconds != nil {
		lagSeconds = seconds(*now.lagSeconds)
	}
	if now.lagBytes != nil {
		lagBytes = size(*now.lagBytes)
	}
	top := 1.5 * topIn // the burst after an outage is cut off, or it would flatten the rest
	rows := []struct {
		name, number string
		values       []float64
		top          float64
		style        style
		note         string
	}{
		{"committed", thousands(now.tally.committed), ins, top, cyan, rate(in)},
		{"delivered", thousands(now.tally.delivered), outs, top, green, rate(out)},
		{"in flight", thousands(now.tally.inFlight()), flying, max(topFlying, 50), violet, "events"},
		{"lag", lagSeconds, lags, max(topLag, 0.5), yellow, lagBytes},
	}
	lines := make([]line, 0, len(rows))
	for _, row := range rows {
		l := line{}.and(plain, "  ").and(dim, "%-10s", row.name).and(bold, "%11s", row.number)
		if width >= narrow {
			l = l.to(left).and(row.style, "%s", spark(row.values, row.top, cells))
		}
		lines = append(lines, l.and(plain, "%*s", right-2, row.note))
	}
	return lines
}

// verdict shows the numbers that should stay where they are.
func verdict(now scene, width int) []line {
	count := func(name string, n int, bad style) line {
		if n > 0 {
			return line{}.and(dim, "%s ", name).and(bad, "%s", thousands(n))
		}
		return line{}.and(dim, "%s ", name).and(green, "0")
	}
	rolled := line{}.and(plain, "  ").and(dim, "%-11s", "rolled back").and(bold, "%10s", thousands(now.tally.rolledBack)).
		and(plain, "   ")
	rolled = append(rolled, count("arrived all the same", now.tally.phantoms, red)...)
	latency := line{}.and(plain, "  ").and(dim, "%-11s", "latency").and(bold, "%10s", short(now.p50)).
		and(plain, "   ").and(dim, "p99 ").and(bold, "%s", short(now.p99)).and(dim, " (last 10 s)")
	duplicates := count("duplicates", now.tally.duplicates, yellow) // allowed: delivery is at least once
	disorder := count("out of order", now.tally.disorder, red)
	if width < narrow+14 { // no room for a third column
		return []line{rolled, latency, append(append(line{}.and(plain, "  "), duplicates...).to(26), disorder...)}
	}
	const third = 55
	return []line{append(rolled.to(third), duplicates...), append(latency.to(third), disorder...)}
}

// events lists what arrived of late, as far as there is room below the heading.
func (s *screen) events(width, room int) []line {
	const positionAt = 26
	positionCells := min(43, width-positionAt-11)
	heading := line{}.and(plain, "  ").and(dim, "%-9s %-13s", "key", "type")
	if positionCells >= 17 {
		heading = heading.to(positionAt).and(dim, "%-*s", positionCells, "position")
	}
	lines := []line{heading.and(dim, "%10s", "latency")}
	for _, a := range s.arrivals[:min(len(s.arrivals), room)] {
		l := line{}.and(plain, "  ").and(cyan, "%-9s", a.key).and(plain, " ").and(kindStyle(a.kind), "%-13s", a.kind)
		if positionCells >= 17 {
			l = l.to(positionAt).and(dim, "%-*s", positionCells, a.position[max(0, len(a.position)-positionCells):])
		}
		lines = append(lines, l.and(plain, "%10s", short(a.latency)))
	}
	return lines
}

func kindStyle(kind string) style {
	switch kind {
	case "OrderPlaced":
		return yellow
	case "OrderPaid":
		return green
	default:
		return blue
	}
}

// message says in a sentence what is going on.
func message(now scene) line {
	l := line{}.and(plain, "  ")
	flying := thousands(now.tally.inFlight())
	switch {
	case now.broker.down > 0:
		return l.and(alarm, " The broker is down. ").and(plain, " Orders go on; %s events wait.", flying)
	case now.phase == draining:
		return l.and(yellow, "The shop is closed. ").and(plain, "%s events are on their way.", flying)
	case now.phase == finishing:
		return l.and(yellow, "Everything has arrived. ").and(plain, "walrelay is told to stop.")
	case now.lagSeconds != nil && *now.lagSeconds > 1 && now.broker.outages > 0:
		return l.and(yellow, "The broker is back. ").and(plain, "walrelay catches up: %s events to go.", flying)
	case now.broker.next > 0:
		return l.and(green, "All is well. ").and(dim, "The broker will be stopped in %.0f s.", now.broker.next.Seconds())
	default:
		return l.and(green, "All is well.")
	}
}
