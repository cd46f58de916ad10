package decoder

import (
	"errors"
	"strconv"
	"strings"
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

// ParseTimestamp reads the text of a timestamptz, timestamp, date or bigint column, or of an envelope. The form alone
// tells them apart, so that domains over these types, whose OIDs say nothing, work as well:
//
//	2026-01-02 12:04:05.123456+00   ISO, as the session pins DateStyle; fraction and offset may be missing
//	2026-01-02T12:04:05.123456Z     RFC 3339, as logical messages have it
//	2026-01-02
//	1767355445123                   milliseconds since 1970, as Debezium's router has it
//
// What has no offset is taken as UTC, which the session pins as well. Infinity, years before Christ
// and years of more than four digits are an ErrTimestamp.
func ParseTimestamp(text []byte) (time.Time, error) {
	s := string(text)
	if strings.LastIndexByte(s, '-') <= 0 { // no date: the sign at most
		ms, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return time.Time{}, ErrTimestamp // err quotes the value
		}
		return time.UnixMilli(ms).UTC(), nil
	}
	t, err := time.Parse(layout(s), s)
	if err != nil {
		return time.Time{}, ErrTimestamp // so does this one
	}
	return t.UTC(), nil
}

// layout returns the layout for s by the offset at its end, which has only as many parts as the zone
// needs: +00, +05:30, -00:44:30. A fraction after the seconds is accepted without being in the layout.
func layout(s string) string {
	if len(s) <= len(time.DateOnly) {
		return time.DateOnly
	}
	sign := strings.LastIndexAny(s, "+-")
	switch {
	case s[len(time.DateOnly)] == 'T':
		return time.RFC3339
	case sign < len(time.DateOnly):
		return time.DateTime
	case len(s)-sign == len("+00"):
		return time.DateTime + "-07"
	case len(s)-sign == len("+00:00"):
		return time.DateTime + "-07:00"
	default:
		return time.DateTime + "-07:00:00"
	}
}
