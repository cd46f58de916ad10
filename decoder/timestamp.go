package decoder

import (
	"errors"
	"strconv"
	"time"
)

// ErrTimestamp is returned for a timestamp column that holds no moment a record could carry. It does
// not quote the value.
var ErrTimestamp = errors.New("not a timestamp: want a date and time up to the year 9999, or epoch milliseconds")

// Time returns the time of the event: the Timestamp column's, or the commit time when the row has
// none. With an error it returns the commit time too, for callers that go on with it.
func (ev *Event) Time() (time.Time, error) {
	if ev.Timestamp == nil {
		return ev.CommitTime, nil
	}
	t, err := ParseTimestamp(ev.Timestamp)
	if err != nil {
		return ev.CommitTime, err
	}
	return t, nil
}

// ParseTimestamp reads the text of a timestamptz, timestamp, date or bigint column. The form alone
// tells them apart, so that domains over these types, whose OIDs say nothing, work as well:
//
//	2026-01-02 12:04:05.123456+00   ISO, as the session pins DateStyle; fraction and offset may be missing
//	2026-01-02
//	1767355445123                   milliseconds since 1970, as Debezium's router has it
//
// What has no offset is taken as UTC, which the session pins as well. Infinity, years before Christ
// and years of more than four digits are an ErrTimestamp.
func ParseTimestamp(text []byte) (time.Time, error) {
	s := string(text)
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.UnixMilli(ms).UTC(), nil
	}
	// The fraction of a second is accepted after 05 without being asked for.
	layout := time.DateOnly
	if len(s) > len(time.DateOnly) {
		layout = time.DateTime + offsetLayout(s[len(time.DateOnly):])
	}
	t, err := time.Parse(layout, s)
	if err != nil {
		return time.Time{}, ErrTimestamp // err quotes the value
	}
	return t.UTC(), nil
}

// offsetLayout returns the layout of the offset at the end of a time of day, which has only as many
// parts as the zone needs: +00, +05:30, -00:44:30.
func offsetLayout(clock string) string {
	for i := range clock {
		if clock[i] != '+' && clock[i] != '-' {
			continue
		}
		switch len(clock) - i {
		case len("+00"):
			return "-07"
		case len("+00:00"):
			return "-07:00"
		default:
			return "-07:00:00"
		}
	}
	return ""
}
