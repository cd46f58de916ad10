package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// busyScene is a demo in the middle of an outage, with everything as wide as it gets.
func busyScene() scene {
	lag, bytes := 4.25, int64(987_654_321)
	return scene{
		uptime: 3725 * time.Second, postgres: "18.4", relay: "connecting",
		broker: brokerState{ours: true, down: 12300 * time.Millisecond, outages: 3},
		tally: tally{
			committed: 12_345_678, delivered: 12_344_000, rolledBack: 617_283, duplicates: 1234, phantoms: 1, disorder: 2,
		},
		lagSeconds: &lag, lagBytes: &bytes, p50: 824 * time.Millisecond, p99: 12 * time.Second,
		newest: arrival{
			key: "barbara", kind: "OrderShipped", position: "00000001-00000001-0000000001DF5BD0-00000000",
			latency: 3 * time.Millisecond,
		},
	}
}

// filled is a screen that has seen more than it can show.
func filled(t *testing.T, out *bytes.Buffer) *screen {
	t.Helper()
	s := newScreen(out)
	s.terminal = true
	at := time.Now()
	for i := range 1200 {
		now := busyScene()
		now.newest.latency = time.Duration(i+1) * time.Millisecond
		now.tally.committed += 50 * i
		now.tally.delivered += 40 * i
		s.remember(now, at.Add(time.Duration(i)*frameInterval))
	}
	return s
}

func TestScreen_FrameFitsEveryTerminal(t *testing.T) {
	t.Parallel()
	s := filled(t, &bytes.Buffer{})
	for _, width := range []int{1, 20, 40, 63, 64, 65, 77, 78, 80, 100, 132, 240, 700} {
		for _, height := range []int{1, 2, 5, 10, 16, 24, 50, 200} {
			for _, broken := range []bool{false, true} {
				now := busyScene()
				if broken {
					now.broker.down, now.lagSeconds, now.lagBytes, now.relay = 0, nil, nil, ""
				}
				s.colour = false
				frame := s.frame(now, width, height)
				rows := strings.Split(strings.TrimPrefix(strings.TrimSuffix(frame, "\x1b[J"), "\x1b[H"), "\r\n")
				require.LessOrEqual(t, len(rows), height, "%dx%d", width, height)
				for _, row := range rows {
					row = strings.TrimSuffix(row, "\x1b[K")
					require.NotContains(t, row, "\x1b")
					require.LessOrEqual(t, utf8.RuneCountInString(row), width, "%dx%d: %q", width, height, row)
				}
			}
		}
	}
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]`)

// Colours change no character, and every one that begins ends on its row.
func TestScreen_ColoursChangeNoText(t *testing.T) {
	t.Parallel()
	s := filled(t, &bytes.Buffer{})
	for _, width := range []int{30, 80, 120} {
		s.colour = false
		bare := s.frame(busyScene(), width, 24)
		s.colour = true
		coloured := s.frame(busyScene(), width, 24)
		require.NotEqual(t, bare, coloured)
		require.Equal(t, escapes.ReplaceAllString(bare, ""), escapes.ReplaceAllString(coloured, ""))
		for row := range strings.SplitSeq(coloured, "\r\n") {
			begun := regexp.MustCompile(`\x1b\[[0-9;]*[1-9]m`).FindAllString(row, -1)
			require.Len(t, begun, strings.Count(row, "\x1b[0m"))
		}
	}
}

func TestScreen_ShowsTheNumbers(t *testing.T) {
	t.Parallel()
	s := filled(t, &bytes.Buffer{})
	s.colour = false
	for width, expected := range map[int][]string{
		80: {
			"up 1:02:05", "DOWN 12.3 s", "12,345,678", "12,344,000", "1,678", "4.2 s", "987.7 MB", "617,283",
			"duplicates 1,234", "arrived all the same 1", "out of order 2", "824 ms", "p99 12.0 s",
			"barbara   OrderShipped  00000001-00000001-0000000001DF5BD0-00000000", "The broker is down", "200/s", "160/s",
		},
		40: {"up 1:02:05", "Kafka DOWN 12.3 s", "12,345,678", "4.2 s", "duplicates 1,234", "out of order 2", "barbara"},
	} {
		frame := s.frame(busyScene(), width, 24)
		for _, text := range expected {
			require.Contains(t, frame, text, "%d columns", width)
		}
	}
}

// What is not known is not shown as 0.
func TestScreen_UnknownIsNotZero(t *testing.T) {
	t.Parallel()
	s := filled(t, &bytes.Buffer{})
	s.colour = false
	now := busyScene()
	now.lagSeconds, now.lagBytes, now.relay = nil, nil, ""
	frame := s.frame(now, 80, 24)
	require.Regexp(t, `lag +\? .* \?`, frame)
	require.Contains(t, frame, "● ?")
	require.Contains(t, s.line(now), "lag ?  walrelay ?")
}

// A screen that is no terminal gets lines without any escape.
func TestScreen_LinesWithoutTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newScreen(&out)
	require.False(t, s.terminal)
	began := time.Now()
	for i := range 3 {
		now := busyScene()
		now.tally.committed = 1000 + 300*i
		now.tally.delivered = 1000 + 100*i
		require.NoError(t, s.show(now, began.Add(time.Duration(i)*time.Second)))
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 3)
	require.Equal(t, "1:02:05  committed 1600 (300/s)  delivered 1200 (100/s)  in flight 400  "+
		"lag 4.2 s 987.7 MB  walrelay connecting  broker DOWN", lines[2])
	require.NotContains(t, out.String(), "\x1b")
}

func TestSpark(t *testing.T) {
	t.Parallel()
	require.Equal(t, "  ▁▂▅█", spark([]float64{0, 0.1, 4, 8}, 8, 6))
	require.Equal(t, "▅█", spark([]float64{0, 1, 4, 80}, 8, 2))
	require.Equal(t, "▁▁", spark([]float64{0, 0}, 0, 2))
}

func TestFigures(t *testing.T) {
	t.Parallel()
	for n, text := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -123: "-123"} {
		require.Equal(t, text, thousands(n))
	}
	require.Equal(t, []string{"512 B", "1.5 kB", "2.0 MB", "3.2 GB"},
		[]string{size(512), size(1500), size(2e6), size(32e8)})
	require.Equal(t, []string{"-", "2.1 ms", "34 ms", "4.2 s"},
		[]string{short(0), short(2100 * time.Microsecond), short(34 * time.Millisecond), short(4200 * time.Millisecond)})
	require.Equal(t, []string{"0:05", "59:59", "2:00:01"},
		[]string{clock(5 * time.Second), clock(3599 * time.Second), clock(7201 * time.Second)})
}
