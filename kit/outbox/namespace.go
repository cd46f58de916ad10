package outbox

import (
	"crypto/sha256"
	"strconv"
	"strings"
	"time"
)

// Namespace makes ids that follow from what an event is about, so that recording it again gives the same
// id. A namespace is any name that is used for nothing else, such as "shop.example/orders".
//
// The ids are UUIDs of version 8 (RFC 9562): the first 16 bytes of SHA-256 over the namespace and the parts,
// each as a netstring (its length in bytes, ":", the bytes, ","), so that no two lists of parts have the same
// text. Not version 5, as SHA-1 lets whoever chooses a key find two of one id, which would hide an event.
type Namespace string

// Key is the id of an event with a business key, such as ("order", "4711", "paid").
func (n Namespace) Key(parts ...string) string { return n.id("key", parts...) }

// Scheduled is the id of the event of a run of a job. All attempts of one group give the same id; a new
// group is how somebody repeats a run on purpose. The time is that of the schedule, to the second, not
// that of the attempt.
func (n Namespace) Scheduled(job string, at time.Time, attemptGroup string) string {
	return n.id("scheduled", job, strconv.FormatInt(at.Unix(), 10), attemptGroup)
}

// Bucket is the id of an event that counts once for a user and an entity within a stretch of time, such as
// one view in ten minutes. Buckets are counted from 1970 in UTC, in whole seconds, at least one. Two events
// close to each other have different ids when the border of two buckets lies between them.
func (n Namespace) Bucket(user, event, entity string, at time.Time, bucket time.Duration) string {
	width := max(int64(bucket/time.Second), 1)
	start := at.Unix()
	start -= (start%width + width) % width
	return n.id("bucket", user, event, entity, strconv.FormatInt(start, 10), strconv.FormatInt(width, 10))
}

func (n Namespace) id(kind string, parts ...string) string {
	var b strings.Builder
	for _, part := range append([]string{string(n), kind}, parts...) {
		b.WriteString(strconv.Itoa(len(part)))
		b.WriteByte(':')
		b.WriteString(part)
		b.WriteByte(',')
	}
	sum := sha256.Sum256([]byte(b.String()))
	return format([16]byte(sum[:16]), 8)
}
