package docs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// major is the PostgreSQL that the pages speak of first.
const major = 18

// wait is how long a test waits for what should take a moment: long, since the machine may be busy.
const wait = 2 * time.Minute

// tick is how often a condition is looked at.
const tick = 20 * time.Millisecond

// world is what the commands of a section find: a database shop, a broker, a slot walrelay, all under the names
// that the pages use. So one section runs at a time.
type world struct {
	db      *testenv.Database
	cluster *testenv.Cluster
	conn    *pgx.Conn         // of the section's SQL, as superuser
	env     map[string]string // of the section's shell
	output  string            // of its last step
	state   string            // directory of the shims
	posted  chan string       // paths that its collector was asked for
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server := testenv.Postgres(t, major)
	w := &world{db: server.CreateDatabase(t, "shop"), cluster: testenv.Kafka(t), state: t.TempDir()}
	t.Cleanup(func() { // the pages may change the server
		server.Exec(t, "ALTER SYSTEM RESET ALL")
		server.Exec(t, "SELECT pg_reload_conf()")
	})
	t.Cleanup(func() { // before the database goes: roles may own things in it
		w.db.Exec(t, `DO $$ DECLARE r name; BEGIN
			FOR r IN SELECT rolname FROM pg_roles WHERE oid >= 16384 LOOP
				EXECUTE format('REASSIGN OWNED BY %1$I TO postgres; DROP OWNED BY %1$I; DROP ROLE %1$I', r);
			END LOOP; END $$`)
		w.deleteTopics(t)
	})
	var err error
	w.conn, err = pgx.Connect(t.Context(), w.db.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.conn.Close(context.Background()) })

	w.env = map[string]string{
		"WALRELAY_DATABASE_URL":    w.db.DSN,
		"WALRELAY_KAFKA_BROKERS":   w.cluster.Seeds(),
		"WALRELAY_CREATE_TOPICS":   "true",
		"WALRELAY_ADMIN_ADDR":      testenv.Addr(t),
		"WALRELAY_STATUS_INTERVAL": "200ms",
		"WALRELAY_BACKOFF_MAX":     "1s",
		"DOCS_WALRELAY":            testenv.Binary(t),
		"DOCS_CLASSPATH":           w.cluster.Classpath(),
		"DOCS_STATE":               w.state,
		"DOCS_PATH":                os.Getenv("PATH"),
	}
	w.env["DOCS_ROOT"], err = filepath.Abs(root)
	require.NoError(t, err)
	shims, err := filepath.Abs("testdata/bin")
	require.NoError(t, err)
	_, err = os.ReadDir(shims) // go test does not see what bash reads, and would answer from its cache
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(w.state, "bin"), 0o700))
	require.NoError(t, os.Symlink(filepath.Join(shims, "walrelay"), filepath.Join(w.state, "bin", "walrelay")))
	excused := filepath.Join(w.state, "excused")
	require.NoError(t, os.Mkdir(excused, 0o700))
	reasons := maps.Clone(programs)
	if _, err := exec.LookPath("curl"); err != nil {
		reasons["curl"] = "it is not on this machine"
	}
	for name, reason := range reasons {
		shim := fmt.Sprintf("#!/bin/sh\necho '%s is not run: %s'\n", name, reason)
		require.NoError(t, os.WriteFile(filepath.Join(excused, name), []byte(shim), 0o700))
	}
	w.env["PATH"] = strings.Join([]string{shims, excused, os.Getenv("PATH")}, ":")
	t.Cleanup(func() { w.stop(t) })
	return w
}

func (w *world) deleteTopics(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	require.Eventually(t, func() bool {
		topics, err := w.cluster.Admin.ListTopics(ctx)
		if err != nil || len(topics) == 0 {
			return err == nil
		}
		_, _ = w.cluster.Admin.DeleteTopics(ctx, topics.Names()...)
		return false
	}, wait, tick)
}

// streamed makes the stream what it is after a first day: it has delivered an event, and is stopped.
func (w *world) streamed(t *testing.T) {
	t.Helper()
	w.sh(t, "walrelay migrate up && walrelay run")
	w.sql(t, `INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', '1', 'created', '{}')`)
	w.cluster.Consume(t, "outbox.event.order").WaitFor(t, 1, wait)
	w.stop(t)
}

// sh runs a script to its end. What `walrelay run` started goes on.
func (w *world) sh(t *testing.T, script string) {
	t.Helper()
	out, err := w.try(t, script)
	require.NoError(t, err, "%s\n%s", script, out)
}

func (w *world) try(t *testing.T, script string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	exported := filepath.Join(w.state, "exported")
	script = "[ ! -e " + exported + " ] || . " + exported + "\n" + script + "\nexport -p >" + exported
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = w.state
	cmd.Env = []string{"HOME=" + os.Getenv("HOME")}
	for name, value := range w.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	// A file, and not a pipe: what goes on in the background holds it.
	out, err := os.Create(filepath.Join(w.state, "output"))
	require.NoError(t, err)
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	text, readErr := os.ReadFile(out.Name())
	w.output = string(text)
	return w.output, errors.Join(err, readErr)
}

// get asks the admin server of `walrelay run`.
func (w *world) get(t *testing.T, path string) string {
	t.Helper()
	url := "http://" + w.env["WALRELAY_ADMIN_ADDR"] + path
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}

var parameter = regexp.MustCompile(`\$(\d+)`)

// sql runs statements, each with as many of the arguments as it has parameters.
func (w *world) sql(t *testing.T, text string, args ...any) {
	t.Helper()
	for _, statement := range statements(text) {
		n := 0
		for _, p := range parameter.FindAllStringSubmatch(statement, -1) {
			number, err := strconv.Atoi(p[1])
			require.NoError(t, err)
			n = max(n, number)
		}
		require.LessOrEqual(t, n, len(args), "parameters without argument: %s", statement)
		given := args[:n]
		args = args[n:]
		if n == 0 {
			given = []any{pgx.QueryExecModeSimpleProtocol}
		}
		rows, err := w.conn.Query(t.Context(), statement, given...)
		require.NoError(t, err, statement)
		var lines []string
		for rows.Next() {
			values, err := rows.Values()
			require.NoError(t, err)
			lines = append(lines, fmt.Sprint(values...))
		}
		require.NoError(t, rows.Err(), statement)
		w.output = strings.Join(lines, "\n")
	}
	require.Empty(t, args, "arguments without parameter")
}

// replication sends a command of the replication protocol.
func (w *world) replication(t *testing.T, command string) {
	t.Helper()
	config, err := pgx.ParseConfig(w.db.ReplicationDSN())
	require.NoError(t, err)
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	_, err = conn.PgConn().Exec(t.Context(), command).ReadAll()
	require.NoError(t, err, command)
}

var quoted = regexp.MustCompile(`(?s)'[^']*'|\$\$.*?\$\$|"[^"]*"|--[^\n]*|;`)

// statements are the parts of a block between its semicolons.
func statements(text string) (all []string) {
	from := 0
	keep := func(to int) {
		if s := strings.TrimSpace(text[from:to]); comment.ReplaceAllString(s, "") != "" {
			all = append(all, s)
		}
	}
	for _, at := range quoted.FindAllStringIndex(text, -1) {
		if text[at[0]:at[1]] == ";" {
			keep(at[0])
			from = at[1]
		}
	}
	keep(len(text))
	return all
}

var comment = regexp.MustCompile(`--[^\n]*\n?`)

// runs are the logs of what `walrelay run` has started.
func (w *world) runs(t *testing.T) []string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(w.state, "run-*.log"))
	require.NoError(t, err)
	return logs
}

// stop ends what `walrelay run` has started, in order.
func (w *world) stop(t *testing.T) {
	t.Helper()
	for _, log := range w.runs(t) {
		text, err := os.ReadFile(log + ".pid")
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended, see below
		var said []byte
		ended := func() bool {
			gone := !alive(pid) // looked at first: all of its output is there then
			said, err = os.ReadFile(log)
			return err == nil && strings.Contains(string(said), `"message":"stopped"`) || gone
		}
		if !waitFor(ended) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		require.Contains(t, string(said), `"message":"stopped"`, "walrelay run did not end in order")
		require.NoError(t, os.Rename(log, log+".ended"))
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return !errors.Is(err, fs.ErrNotExist) && !strings.Contains(string(stat), ") Z ")
}

func waitFor(condition func() bool) bool {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); <-ticker.C {
		if condition() {
			return true
		}
	}
	return false
}
