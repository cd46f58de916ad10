package retention

import (
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Every is how long a partition is. They begin at full hours, days, Mondays or months, in UTC.
type Every string

// The lengths of partitions.
const (
	Hourly  Every = "hour"
	Daily   Every = "day"
	Weekly  Every = "week"
	Monthly Every = "month"
)

// span is a range of time, without its end.
type span struct{ begin, end time.Time }

// String returns both ends.
func (s span) String() string {
	return fmt.Sprintf("from %s to %s", s.begin.Format(boundTime), s.end.Format(boundTime))
}

func (s span) holds(at time.Time) bool { return !s.begin.After(at) && s.end.After(at) }

// within says that one of spans holds where s begins.
func (s span) within(spans []span) bool {
	return slices.ContainsFunc(spans, func(other span) bool { return other.holds(s.begin) })
}

// around is the range in which a time lies.
func (e Every) around(at time.Time) span {
	at = at.UTC()
	day := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
	switch e {
	case Hourly:
		begin := at.Truncate(time.Hour)
		return span{begin, begin.Add(time.Hour)}
	case Weekly:
		sinceMonday := (int(day.Weekday()) + 6) % 7
		begin := day.AddDate(0, 0, -sinceMonday)
		return span{begin, begin.AddDate(0, 0, 7)}
	case Monthly:
		begin := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
		return span{begin, begin.AddDate(0, 1, 0)}
	default:
		return span{day, day.AddDate(0, 0, 1)}
	}
}

// missing are the ranges that cover the time from begin up to end together with existing ones, which may be of
// other lengths and begin at other times.
func (e Every) missing(existing []span, begin, end time.Time) (spans []span) {
	for at := begin; !at.After(end); {
		next := e.around(at)
		if i := slices.IndexFunc(existing, func(s span) bool { return s.holds(at) }); i >= 0 {
			at = existing[i].end
			continue
		}
		for _, s := range existing {
			if s.end.After(next.begin) && !s.end.After(at) {
				next.begin = s.end
			}
			if s.begin.After(at) && s.begin.Before(next.end) {
				next.end = s.begin
			}
		}
		spans = append(spans, next)
		at = next.end
	}
	return spans
}

// infinite is a time that may be infinite: then it is further away than any that is looked at.
type infinite time.Time

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (i *infinite) ScanTimestamptz(v pgtype.Timestamptz) error {
	switch v.InfinityModifier {
	case pgtype.Infinity:
		*i = infinite(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
	case pgtype.NegativeInfinity:
		*i = infinite{}
	default:
		*i = infinite(v.Time.UTC())
	}
	return nil
}
