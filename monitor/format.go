package monitor

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"time"
)

// pageFuncs are how the page writes numbers and times.
func pageFuncs() template.FuncMap {
	return template.FuncMap{
		"bytes": shownBytes, "span": shownSpan, "rate": shownRate, "clock": shownClock,
		"ago":    func(now, then time.Time) string { return shownSpan(max(0, now.Sub(then).Seconds())) },
		"signed": func(n int64) string { return strconv.FormatInt(n, 10) },
	}
}

// shownBytes has three digits and a unit of 1024.
func shownBytes(n int64) string {
	value, unit := float64(n), 0
	for math.Abs(value) >= 999.5 && unit < 5 {
		value, unit = value/1024, unit+1
	}
	return threeDigits(value) + " " + [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}[unit]
}

// shownSpan is a time span of so many seconds in its two largest units.
func shownSpan(seconds float64) string {
	switch s := int64(seconds); {
	case seconds == 0:
		return "0 s"
	case seconds < 0.9995:
		return threeDigits(seconds*1000) + " ms"
	case s < 60:
		return threeDigits(seconds) + " s"
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	default:
		return fmt.Sprintf("%d d %d h", s/86400, s%86400/3600)
	}
}

func shownRate(perSecond float64) string {
	switch {
	case perSecond < 9999.5:
		return threeDigits(perSecond) + "/s"
	case perSecond < 999_500:
		return threeDigits(perSecond/1e3) + " k/s"
	default:
		return threeDigits(perSecond/1e6) + " M/s"
	}
}

// shownClock is a moment on the clock of whoever noted it, in UTC.
func shownClock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" }

// threeDigits rounds to what a reader can tell apart.
func threeDigits(value float64) string {
	switch magnitude := math.Abs(value); {
	case value == math.Trunc(value) || magnitude >= 99.95:
		return strconv.FormatFloat(value, 'f', 0, 64)
	case magnitude >= 9.995:
		return strconv.FormatFloat(value, 'f', 1, 64)
	default:
		return strconv.FormatFloat(value, 'f', 2, 64)
	}
}
