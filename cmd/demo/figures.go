package main

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// thousands groups digits: 1,234,567.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// size shows bytes in three or four digits.
func size(bytes int64) string {
	switch b := float64(bytes); {
	case b < 1e3:
		return fmt.Sprintf("%d B", bytes)
	case b < 1e6:
		return fmt.Sprintf("%.1f kB", b/1e3)
	case b < 1e9:
		return fmt.Sprintf("%.1f MB", b/1e6)
	default:
		return fmt.Sprintf("%.1f GB", b/1e9)
	}
}

func seconds(s float64) string { return fmt.Sprintf("%.1f s", s) }

// short shows a latency: 2.1 ms, 340 ms, 4.2 s. An unknown one is 0.
func short(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case d <= 0:
		return "-"
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return seconds(ms / 1000)
	}
}

// clock shows a time that runs: 1:05 or 2:03:04.
func clock(d time.Duration) string {
	s := int(d.Seconds())
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// spark draws the last values, one cell each, in eighths of the top; what is not known is left empty.
func spark(values []float64, top float64, cells int) string {
	const eighths = "▁▂▃▄▅▆▇█"
	levels := []rune(eighths)
	drawn := make([]rune, 0, cells)
	for range cells - len(values) {
		drawn = append(drawn, ' ')
	}
	if top <= 0 {
		top = 1
	}
	for _, v := range values[max(0, len(values)-cells):] {
		if math.IsNaN(v) {
			drawn = append(drawn, ' ')
			continue
		}
		level := int(math.Ceil(v / top * float64(len(levels)-1)))
		drawn = append(drawn, levels[min(max(level, 0), len(levels)-1)])
	}
	return string(drawn)
}
