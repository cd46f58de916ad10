package connect

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The positions that stand for infinity. Debezium has those of the JDBC driver, PGStatement.DATE_POSITIVE_INFINITY and
// DATE_NEGATIVE_INFINITY, as microseconds; as a day, which is 32 bits wide, they overflow.
const (
	always, since             = "infinity", "-infinity"
	alwaysMicros, sinceMicros = 9223372036825200000, -9223372036832400000
	alwaysDay, sinceDay       = -2147472692, -2147472691
)

// appendTime appends a value of the kinds that are dates, times and durations.
func (t Type) appendTime(dst []byte, text string) ([]byte, error) {
	switch t.Kind {
	case Zoned:
		return appendZoned(dst, text, t.Scale)
	case ZonedTime:
		return appendZonedTime(dst, text)
	default:
		n, err := t.units(text)
		return strconv.AppendInt(dst, n, 10), err
	}
}

// units is a value in the unit of its kind.
func (t Type) units(text string) (int64, error) {
	switch t.Kind {
	case Date:
		return days(text)
	case Timestamp:
		return micros(text)
	case MilliTimestamp:
		n, err := micros(text)
		return floorDiv(n, 1000), err
	case MilliTime:
		n, err := clock(text)
		return n / 1000, err
	case Time:
		return clock(text)
	default:
		return duration(text)
	}
}

func days(text string) (int64, error) {
	switch text {
	case always:
		return alwaysDay, nil
	case since:
		return sinceDay, nil
	}
	at, err := parseTime(time.DateOnly, text)
	return floorDiv(at.Unix(), 24*60*60), err
}

func micros(text string) (int64, error) {
	switch text {
	case always:
		return alwaysMicros, nil
	case since:
		return sinceMicros, nil
	}
	at, err := parseTime(time.DateTime, text)
	return at.UnixMicro(), err
}

func floorDiv(n, by int64) int64 {
	if n < 0 {
		n -= by - 1
	}
	return n / by
}

// appendZoned appends a timestamp with the digits of its type, as java.time prints years: before 0000 and beyond 9999
// with a sign.
func appendZoned(dst []byte, text string, digits int) ([]byte, error) {
	if text == always || text == since {
		return append(dst, text...), nil
	}
	at, err := parseTime("2006-01-02 15:04:05-07", text)
	if err != nil {
		return dst, err
	}
	at = at.UTC()
	switch year := at.Year(); {
	case year < 0:
		dst = fmt.Appendf(dst, "-%04d", -year)
	case year > 9999:
		dst = fmt.Appendf(dst, "+%d", year)
	default:
		dst = fmt.Appendf(dst, "%04d", year)
	}
	layout := "-01-02T15:04:05"
	if digits > 0 {
		layout += "." + strings.Repeat("0", digits)
	}
	return at.AppendFormat(dst, layout+"Z"), nil
}

// appendZonedTime appends a time of day at UTC, without the zeros at its end.
func appendZonedTime(dst []byte, text string) ([]byte, error) {
	if len(text) < len("00:00:00+00") {
		return dst, ErrValue
	}
	if strings.HasPrefix(text, "24:") {
		text = "00:" + text[3:]
	}
	layout := "15:04:05-07"
	switch strings.Count(text, ":") {
	case 3:
		layout += ":00"
	case 4:
		layout += ":00:00"
	}
	at, err := time.Parse(layout, text)
	if err != nil {
		return dst, ErrValue
	}
	return at.UTC().AppendFormat(dst, "15:04:05.999999Z"), nil
}

// parseTime reads a date or a timestamp as PostgreSQL prints it in ISO style: the year has as many digits as it needs,
// and BC may stand behind it.
func parseTime(layout, text string) (time.Time, error) {
	text, before := strings.CutSuffix(text, " BC")
	digits, rest, _ := strings.Cut(text, "-")
	year, err := strconv.Atoi(digits)
	t, layoutErr := time.Parse(layout, "2000-"+rest) // a leap year
	if errors.Join(err, layoutErr) != nil {
		return t, ErrValue
	}
	if before {
		year = 1 - year
	}
	return time.Date(year, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), t.Location()), nil
}

// clock is a time of day in microseconds, up to 24:00:00.
func clock(text string) (int64, error) {
	if len(text) < len("00:00:00") {
		return 0, ErrValue
	}
	hours, err := strconv.ParseInt(text[:2], 10, 64)
	t, restErr := time.Parse("04:05", text[3:])
	if errors.Join(err, restErr) != nil || text[2] != ':' {
		return 0, ErrValue
	}
	return hours*int64(time.Hour/time.Microsecond) + t.Sub(t.Truncate(time.Hour)).Microseconds(), nil
}

// duration is an interval in microseconds, a month being the twelfth part of 365.25 days. It is worked out in floating
// point and in the order of io.debezium.time.MicroDuration; each conversion forbids a fused operation.
func duration(text string) (int64, error) {
	var years, months, days float64
	var hours, minutes, seconds float64
	fields := strings.Fields(text)
	for len(fields) > 1 {
		n, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return 0, ErrValue
		}
		switch strings.TrimSuffix(fields[1], "s") {
		case "year":
			years = n
		case "mon":
			months = n
		case "day":
			days = n
		default:
			return 0, ErrValue
		}
		fields = fields[2:]
	}
	if len(fields) == 1 {
		parts := strings.Split(strings.TrimPrefix(fields[0], "-"), ":")
		if len(parts) != 3 {
			return 0, ErrValue
		}
		for i, to := range []*float64{&hours, &minutes, &seconds} {
			n, err := strconv.ParseFloat(parts[i], 64)
			if err != nil {
				return 0, ErrValue
			}
			if *to = n; fields[0][0] == '-' {
				*to = -n
			}
		}
	}
	const daysPerMonth = 365.25 / 12
	all := float64((years*12+months)*daysPerMonth) + days
	all = float64((float64((float64(all*24)+hours)*60)+minutes)*60) + seconds
	return int64(all * 1e6), nil
}
