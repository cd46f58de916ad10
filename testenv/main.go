package testenv

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and then stops the servers that they shared.
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
func Main(m *testing.M) {
	code := m.Run()
	os.Exit(max(code, stopShared()))
}

// VerifyMain is Main for packages that start goroutines: it also fails when any is left at the end.
func VerifyMain(m *testing.M, ignore ...goleak.Option) {
	code := max(m.Run(), stopShared())
	if code == 0 {
		if err := leaked(30*time.Second, ignore...); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left at the end of the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaked looks for goroutines that stay. Those that are about to end get more time than goleak gives them, which is
// less than half a second: a connection that is given up in the middle of a query is closed in the background.
func leaked(limit time.Duration, ignore ...goleak.Option) (err error) {
	poll(limit, func() bool {
		err = goleak.Find(ignore...)
		return err == nil
	})
	return err
}

// Majors are the PostgreSQL majors to run tests against: those of WALRELAY_TEST_MAJORS ("14,18"), or
// 15 and 18. What is not a number becomes 0, which Postgres refuses.
func Majors() []int {
	list := os.Getenv("WALRELAY_TEST_MAJORS")
	if list == "" {
		return []int{15, 18}
	}
	var majors []int
	for s := range strings.SplitSeq(list, ",") {
		major, _ := strconv.Atoi(strings.TrimSpace(s))
		majors = append(majors, major)
	}
	return majors
}

// ForMajors runs a subtest for each of Majors.
func ForMajors(t *testing.T, test func(t *testing.T, major int)) {
	t.Helper()
	for _, major := range Majors() {
		t.Run(fmt.Sprintf("postgres-%d", major), func(t *testing.T) { test(t, major) })
	}
}

// shared are the servers that the tests of this process use together, and names the counter that
// makes their databases, slots and topics unique.
//

var (
	shared registry
	names  atomic.Int64
)

type registry struct {
	mu      sync.Mutex
	entries map[string]*entry
}

type entry struct {
	once  sync.Once
	value interface{ close() error }
	err   error
}

// share returns the server of that name, starting it when no test has asked for it yet.
func share[T interface{ close() error }](t testing.TB, name string, start func() (T, error)) T {
	t.Helper()
	shared.mu.Lock()
	if shared.entries == nil {
		shared.entries = map[string]*entry{}
	}
	e := shared.entries[name]
	if e == nil {
		e = &entry{}
		shared.entries[name] = e
	}
	shared.mu.Unlock()

	e.once.Do(func() { e.value, e.err = start() })
	if e.err != nil {
		t.Fatalf("start shared %s: %v", name, e.err)
	}
	return e.value.(T) //nolint:forcetypeassert // a name stands for one type
}

// stopShared returns an exit code.
func stopShared() int {
	code := 0
	for name, e := range shared.entries {
		if e.err != nil || e.value == nil {
			continue
		}
		if err := e.value.close(); err != nil {
			fmt.Fprintf(os.Stderr, "stop shared %s: %v\n", name, err)
			code = 1
		}
	}
	if dir, err := workDir(); err == nil {
		_ = os.RemoveAll(dir) // swept by a later process otherwise
	}
	return code
}

// uniqueName makes a name from a test's that is legal for a slot, a database and a topic: at most 63
// lower-case letters, digits and underscores.
func uniqueName(t testing.TB) string {
	var b strings.Builder
	for _, r := range strings.ToLower(t.Name()) {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			r = '_'
		}
		b.WriteRune(r)
	}
	suffix := fmt.Sprintf("_%d", names.Add(1))
	name := b.String()
	return name[:min(len(name), 63-len(suffix))] + suffix
}
