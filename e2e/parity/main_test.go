package parity

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// asked skips a test that `make debezium-parity` runs: it fetches Debezium and starts a JVM with many connectors.
func asked(t *testing.T) {
	t.Helper()
	if os.Getenv("WALRELAY_PARITY") == "" {
		t.Skip("WALRELAY_PARITY is not set: run make debezium-parity")
	}
}

// environment is that of a walrelay which reads a slot of db.
func environment(
	t *testing.T, db *testenv.Database, kafka *testenv.Cluster, slot, publication string,
) map[string]string {
	t.Helper()
	return map[string]string{
		"WALRELAY_DATABASE_URL": db.DSN, "WALRELAY_KAFKA_BROKERS": kafka.Seeds(),
		"WALRELAY_SLOT": slot, "WALRELAY_PUBLICATION": publication,
		"WALRELAY_ADMIN_ADDR": testenv.Addr(t), "WALRELAY_STATUS_INTERVAL": "200ms", "WALRELAY_ON_POISON": "skip",
		// What Debezium's router does not send by itself.
		"WALRELAY_COLUMN_TYPE": "", "WALRELAY_COLUMN_HEADERS": "", "WALRELAY_COLUMN_TRACEPARENT": "",
		"WALRELAY_COLUMN_TRACESTATE": "", "WALRELAY_COLUMN_TRACINGSPANCONTEXT": "",
	}
}

// walrelay runs a command to its end.
func walrelay(t *testing.T, env map[string]string, args ...string) {
	t.Helper()
	p := testenv.StartProcess(t, testenv.Command{Path: testenv.Binary(t), Args: args, Env: env})
	require.Zero(t, p.Wait(t, wait), p.Stdout()+p.Log())
}

const streaming = `"message":"streaming"`

// start starts `walrelay run`.
func start(t *testing.T, env map[string]string) *testenv.Process {
	t.Helper()
	return testenv.StartProcess(t, testenv.Command{Path: testenv.Binary(t), Args: []string{"run"}, Env: env})
}

// stream starts it and waits until it streams.
func stream(t *testing.T, env map[string]string) *testenv.Process {
	t.Helper()
	p := start(t, env)
	p.WaitForLog(t, streaming, wait)
	return p
}
