package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/walrelay/walrelay/cdc/replay"
	"github.com/walrelay/walrelay/sink"
)

// configured returns the output of config as a map, and the faults.
func configured(t *testing.T, env []string, args ...string) (map[string]string, result) {
	t.Helper()
	r := execute(t, env, append([]string{"config"}, args...)...)
	values := make(map[string]string)
	for line := range strings.SplitSeq(strings.TrimSpace(r.stdout), "\n") {
		name, value, found := strings.Cut(line, "=")
		require.True(t, found, "%q is not NAME=value", line)
		values[name] = value
	}
	return values, r
}

func TestSettings_DefaultsAreLegal(t *testing.T) {
	t.Parallel()
	values, r := configured(t, minimal())
	require.Equal(t, exitOK, r.code, r.stderr)
	require.Empty(t, r.stderr)
	require.Equal(t, "walrelay", values["WALRELAY_STREAM"], "a stream is named after its slot")
	require.Equal(t, "2MiB", values["WALRELAY_IN_FLIGHT_BYTES"])
	require.Equal(t, ":8080", values["WALRELAY_ADMIN_ADDR"])
}

func TestSettings_ExactlyOnce(t *testing.T) {
	t.Parallel()
	values, r := configured(t, minimal("WALRELAY_DELIVERY=exactly-once", "WALRELAY_TRANSACTION_INTERVAL=29s"))
	require.Equal(t, exitOK, r.code, r.stderr)
	require.Equal(t, "walrelay.state", values["WALRELAY_STATE_TOPIC"])
	require.Equal(t, "60s", values["WALRELAY_TRANSACTION_TIMEOUT"])
	require.Equal(t, "8MiB", values["WALRELAY_IN_FLIGHT_BYTES"])
}

func TestSettings_FlagsWinOverVariables(t *testing.T) {
	t.Parallel()
	values, r := configured(t,
		minimal("WALRELAY_SLOT=from_env", "WALRELAY_KAFKA_TLS=true", "WALRELAY_CREATE_TOPICS=false"),
		"--slot=from_flag", "--create-topics")
	require.Equal(t, exitOK, r.code, r.stderr)
	require.Equal(t, "from_flag", values["WALRELAY_SLOT"])
	require.Equal(t, "from_flag", values["WALRELAY_STREAM"])
	require.Equal(t, "true", values["WALRELAY_KAFKA_TLS"])
	require.Equal(t, "true", values["WALRELAY_CREATE_TOPICS"])
}

func TestSettings_EmptyTextIsAValue(t *testing.T) {
	t.Parallel()
	values, r := configured(t, minimal("WALRELAY_ADMIN_ADDR=", "WALRELAY_COLUMN_HEADERS=", "WALRELAY_BATCH_BYTES="))
	require.Equal(t, exitOK, r.code, r.stderr)
	require.Empty(t, values["WALRELAY_ADMIN_ADDR"])
	require.Equal(t, "1000000", values["WALRELAY_BATCH_BYTES"])
	require.Empty(t, values["WALRELAY_COLUMN_HEADERS"])
}

// An event may have its type from a table's own column, or from a message of either kind.
func TestSettings_Typed(t *testing.T) {
	t.Parallel()
	for _, typed := range []string{
		"WALRELAY_MESSAGE_PREFIX=p", "WALRELAY_MESSAGE_BINARY_PREFIX=p", "WALRELAY_TABLE_COLUMNS=outbox: type=kind",
	} {
		_, r := configured(t, minimal("WALRELAY_COLUMN_TYPE=", "WALRELAY_FORMAT=cloudevents-binary",
			"WALRELAY_TOPIC_BY_TYPE=Paid=bills", typed))
		require.Equal(t, exitOK, r.code, r.stderr)
	}
}

func TestSettings_EachRule(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	garbage := filepath.Join(t.TempDir(), "garbage.pem")
	require.NoError(t, os.WriteFile(garbage, []byte("not PEM"), 0o600))
	long := strings.Repeat("x", 64)

	for _, test := range []struct {
		env  []string // on top of the minimal environment
		want string   // one line of the faults
	}{
		{[]string{"WALRELAY_KAFKA_BROKERS="}, "WALRELAY_KAFKA_BROKERS=: is required"},
		{[]string{"WALRELAY_FORMAT=avro"}, "WALRELAY_FORMAT=avro: must be one of raw, cloudevents-binary, "},
		{
			[]string{"WALRELAY_FORMAT=cloudevents-binary", "WALRELAY_COLUMN_TYPE="},
			"WALRELAY_FORMAT=cloudevents-binary: needs WALRELAY_COLUMN_TYPE",
		},
		{[]string{"WALRELAY_CLOUDEVENTS_SOURCE=:x"}, "WALRELAY_CLOUDEVENTS_SOURCE=:x: must be a URI reference"},
		{[]string{"WALRELAY_CLOUDEVENTS_SOURCE=a b"}, "WALRELAY_CLOUDEVENTS_SOURCE=a b: must be a URI reference"},
		{
			[]string{"WALRELAY_FORMAT=cloudevents-structured", "WALRELAY_TOMBSTONE_ON_EMPTY=true"},
			"WALRELAY_TOMBSTONE_ON_EMPTY=true: must be false with WALRELAY_FORMAT=cloudevents-structured",
		},
		{[]string{"WALRELAY_CLOUDEVENTS_CONTENT_TYPE="}, "WALRELAY_CLOUDEVENTS_CONTENT_TYPE=: must be a media type"},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox"}, "WALRELAY_TABLE_COLUMNS=outbox: must list table: part=column"},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox: id"}, "must list part=column, each part once"},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox: id=a, id=b"}, "must list part=column, each part once"},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox: id=a; outbox: id=b"}, `but "public"."outbox" comes twice`},
		{[]string{"WALRELAY_TABLE_COLUMNS=other: id=a"}, `has "public"."other", which is none of WALRELAY_TABLES`},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox: body=a"}, `in braces, not "body"`},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox: {kind}=a"}, `in braces, not "{kind}"`},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox: key="}, "must name a column for key"},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox: retention="}, "must name a column for retention"},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox: topic=b c"}, "topic must be a topic name with {column} fields"},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox: topic=.."}, "topic must be 1 to 249 of letters"},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox: topic=walrelay.state"}, "must not be WALRELAY_STATE_TOPIC"},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox: topic=walrelay.dead-letters"}, "must not be WALRELAY_DEAD_LETTER_TOPIC"},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox: topic=t, {aggregatetype}=a"}, `in braces, not "{aggregatetype}"`},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox: key_template=tenant"}, "key_template must have a {column} field"},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox: key=k, key_template={l}"}, "must not have both key and key_template"},
		{[]string{"WALRELAY_KEY_TEMPLATE={a"}, "WALRELAY_KEY_TEMPLATE={a: must be text with {column} fields"},
		{[]string{"WALRELAY_KEY_TEMPLATE=a"}, "WALRELAY_KEY_TEMPLATE=a: must have a {column} field"},
		{[]string{"WALRELAY_KEY_TEMPLATE={" + long + "}"}, "must have column names of 1 to 63 bytes"},
		{[]string{"WALRELAY_TABLE_COLUMNS=outbox: key=\"K\""}, "must have columns without quotes"},
		{[]string{"WALRELAY_TOPIC_MAP=a"}, "WALRELAY_TOPIC_MAP=a: must list from=topic"},
		{[]string{"WALRELAY_TOPIC_MAP=a=b,a=c"}, `WALRELAY_TOPIC_MAP=a=b,a=c: must name "a" once`},
		{[]string{"WALRELAY_TOPIC_MAP=a=b c"}, `WALRELAY_TOPIC_MAP=a=b c: topic of "a" must be 1 to 249 of`},
		{[]string{"WALRELAY_TOPIC_MAP=a="}, `WALRELAY_TOPIC_MAP=a=: topic of "a" must be 1 to 249 of`},
		{[]string{"WALRELAY_TOPIC_BY_TYPE=a=walrelay.dead-letters"}, `topic of "a" must not be WALRELAY_DEAD_LETTER_TOPIC`},
		{[]string{"WALRELAY_TOPIC_BY_TYPE=a=walrelay.state"}, `topic of "a" must not be WALRELAY_STATE_TOPIC`},
		{
			[]string{"WALRELAY_TOPIC_BY_TYPE=a=b", "WALRELAY_COLUMN_TYPE="},
			"WALRELAY_TOPIC_BY_TYPE=a=b: needs WALRELAY_COLUMN_TYPE",
		},
		{[]string{"WALRELAY_TOPIC_INVALID=drop"}, "WALRELAY_TOPIC_INVALID=drop: must be one of refuse, replace"},
		{[]string{"WALRELAY_COLUMN_TRACESTATE=\"q\""}, "WALRELAY_COLUMN_TRACESTATE=\"q\": must be written without quotes"},
		{[]string{"WALRELAY_KAFKA_BROKERS=kafka"}, `WALRELAY_KAFKA_BROKERS=kafka: must be host:port`},
		{[]string{"WALRELAY_KAFKA_BROKERS=a:1,,b:2"}, "must be host:port"},
		{[]string{"WALRELAY_KAFKA_BROKERS=a:99999"}, "must be host:port"},
		{[]string{"WALRELAY_KAFKA_BROKERS=:9092"}, "must be host:port"},
		{[]string{"WALRELAY_DATABASE_URL="}, "WALRELAY_DATABASE_URL=: is required, unless PGHOST"},
		{[]string{"WALRELAY_DATABASE_URL=postgres://h/d?sslmode=no"}, "=(redacted): must be a PostgreSQL URL"},
		{[]string{"WALRELAY_DATABASE_URL_FILE=/x"}, "must not be set together with WALRELAY_DATABASE_URL_FILE"},
		{[]string{"WALRELAY_SLOT=Orders"}, "WALRELAY_SLOT=Orders: must be 1 to 63 of a-z"},
		{[]string{`WALRELAY_SLOT=x"; DROP TABLE t; --`}, "must be 1 to 63 of a-z"},
		{[]string{"WALRELAY_SLOT=" + long}, "must be 1 to 63 of a-z"},
		{[]string{"WALRELAY_STREAM=a b"}, "WALRELAY_STREAM=a b: must be 1 to 100 of letters"},
		{[]string{"WALRELAY_PUBLICATION="}, "WALRELAY_PUBLICATION=: must not have an empty name"},
		{[]string{`WALRELAY_PUBLICATION="My-Pub"`}, "must be written without quotes"},
		{[]string{"WALRELAY_PUBLICATION=" + long}, "must not have a name of more than 63 bytes"},
		{[]string{"WALRELAY_SLOT_FAILOVER=maybe"}, "WALRELAY_SLOT_FAILOVER=maybe: must be true or false"},
		{[]string{"WALRELAY_TABLES=,"}, "WALRELAY_TABLES=,: must list SQL names"},
		{[]string{"WALRELAY_TABLES=a,a"}, "must name a table once"},
		{[]string{"WALRELAY_TABLES=a b"}, "must have a comma between tables"},
		{[]string{`WALRELAY_TABLES="a`}, "must close its double quotes"},
		{[]string{"WALRELAY_TABLES=a.b.c"}, "must have a comma between tables"},
		{[]string{"WALRELAY_TABLES=x; DROP TABLE outbox"}, "must have a comma between tables"},
		{[]string{"WALRELAY_COLUMN_ID="}, "WALRELAY_COLUMN_ID=: must not have an empty name"},
		{[]string{"WALRELAY_COLUMN_KEY="}, "must not have an empty name"},
		{[]string{"WALRELAY_COLUMN_PAYLOAD="}, "must not have an empty name"},
		{[]string{"WALRELAY_COLUMN_TYPE=" + long}, "must not have a name of more than 63 bytes"},
		{[]string{"WALRELAY_MESSAGE_PREFIX=a\x00b"}, "must not have a NUL"},
		{[]string{"WALRELAY_MESSAGE_BINARY_PREFIX=a\x00b"}, "must not have a NUL"},
		{[]string{"WALRELAY_MESSAGE_PREFIX=a", "WALRELAY_MESSAGE_BINARY_PREFIX=a"}, "must not be WALRELAY_MESSAGE_PREFIX"},
		{[]string{"WALRELAY_MESSAGE_NONTRANSACTIONAL=publish"}, "must be one of ignore, refuse"},
		{[]string{"WALRELAY_TOPIC="}, "WALRELAY_TOPIC=: must be a topic name"},
		{[]string{"WALRELAY_TOPIC=a{b"}, "must be a topic name"},
		{[]string{"WALRELAY_TOPIC=a b"}, "must be a topic name"},
		{[]string{"WALRELAY_TOPIC=.."}, "must be 1 to 249 of letters"},
		{[]string{"WALRELAY_TOPIC={" + long + "}"}, "must have column names of 1 to 63 bytes"},
		{[]string{"WALRELAY_TOPIC_PARTITIONS=-1"}, "must be a whole number"},
		{[]string{"WALRELAY_TOPIC_REPLICATION=40000"}, "must be at most 32767"},
		{[]string{"WALRELAY_ON_POISON=drop"}, "must be one of stop, dead-letter, skip"},
		{[]string{"WALRELAY_DEAD_LETTER_TOPIC=a/b"}, "must be 1 to 249 of letters"},
		{[]string{"WALRELAY_TOPIC=__consumer_offsets"}, "and no topic of Kafka's own"},
		{[]string{"WALRELAY_TOPIC=t", "WALRELAY_DEAD_LETTER_TOPIC=t"}, "TOPIC=t: must not be WALRELAY_TOPIC"},
		{[]string{"WALRELAY_TRANSACTION_INTERVAL=0s"}, "WALRELAY_TRANSACTION_INTERVAL=0s: must be more than 0s"},
		{[]string{"WALRELAY_TRANSACTION_INTERVAL=30s"}, "must be less than half of WALRELAY_TRANSACTION_TIMEOUT=60s"},
		{[]string{"WALRELAY_TRANSACTION_TIMEOUT=200ms"}, "must be less than half of WALRELAY_TRANSACTION_TIMEOUT=200ms"},
		{[]string{"WALRELAY_TRANSACTION_TIMEOUT=600h"}, "WALRELAY_TRANSACTION_TIMEOUT=600h: must be at most 596h31m"},
		{[]string{"WALRELAY_STATE_TOPIC=a/b"}, "WALRELAY_STATE_TOPIC=a/b: must be 1 to 249 of letters"},
		{[]string{"WALRELAY_STATE_TOPIC=walrelay.dead-letters"}, "must not be WALRELAY_DEAD_LETTER_TOPIC"},
		{[]string{"WALRELAY_TOPIC=t", "WALRELAY_STATE_TOPIC=t"}, "STATE_TOPIC=t: must not be WALRELAY_TOPIC"},
		{[]string{"WALRELAY_DELIVERY=once"}, "must be one of at-least-once, exactly-once"},
		{[]string{"WALRELAY_COMPRESSION=zip"}, "must be one of none, gzip, snappy, lz4, zstd"},
		{[]string{"WALRELAY_BATCH_BYTES=1"}, "must be from 1KiB to 100MiB"},
		{[]string{"WALRELAY_BATCH_BYTES=101MiB", "WALRELAY_IN_FLIGHT_BYTES=1GiB"}, "must be from 1KiB to 100MiB"},
		{[]string{"WALRELAY_IN_FLIGHT_BYTES=2kB"}, "=2kB: must be at least WALRELAY_BATCH_BYTES=1000000"},
		{[]string{"WALRELAY_IN_FLIGHT_BYTES=many"}, "must be a size in bytes"},
		{[]string{"WALRELAY_IN_FLIGHT_EVENTS=0"}, "must be at least 1"},
		{[]string{"WALRELAY_IN_FLIGHT_EVENTS=1.5"}, "must be a whole number"},
		{[]string{"WALRELAY_MAX_MESSAGE_BYTES=2GiB"}, "must be from 64KiB to 1GiB"},
		{[]string{"WALRELAY_STATUS_INTERVAL=99ms"}, "must be at least 100ms"},
		{[]string{"WALRELAY_STATUS_INTERVAL=1"}, "must be a duration with its unit"},
		{[]string{"WALRELAY_STATUS_INTERVAL=-1s"}, "must be a duration with its unit"},
		{[]string{"WALRELAY_RECEIVE_TIMEOUT=1s"}, "must be at least twice WALRELAY_STATUS_INTERVAL=1s"},
		{[]string{"WALRELAY_PRODUCE_TIMEOUT=0s"}, "must be at least 100ms"},
		{[]string{"WALRELAY_SHUTDOWN_TIMEOUT=0s"}, "must be more than 0s"},
		{[]string{"WALRELAY_BACKOFF_MIN=0s"}, "must be more than 0s"},
		{[]string{"WALRELAY_BACKOFF_MAX=1ms"}, "must be at least WALRELAY_BACKOFF_MIN=100ms"},
		{[]string{"WALRELAY_KAFKA_TLS_SERVER_NAME=x"}, "needs WALRELAY_KAFKA_TLS=true"},
		{[]string{"WALRELAY_KAFKA_TLS_CA_FILE=" + garbage}, "needs WALRELAY_KAFKA_TLS=true"},
		{[]string{"WALRELAY_KAFKA_TLS=true", "WALRELAY_KAFKA_TLS_CA_FILE=" + garbage}, "holds no certificate"},
		{[]string{"WALRELAY_KAFKA_TLS=true", "WALRELAY_KAFKA_TLS_CA_FILE=" + missing}, "no such file"},
		{[]string{"WALRELAY_KAFKA_TLS=true", "WALRELAY_KAFKA_TLS_CERT_FILE=" + garbage}, "needs WALRELAY_KAFKA_TLS_KEY_FILE"},
		{[]string{"WALRELAY_KAFKA_TLS=true", "WALRELAY_KAFKA_TLS_KEY_FILE=" + garbage}, "needs WALRELAY_KAFKA_TLS_CERT_FILE"},
		{[]string{"WALRELAY_KAFKA_SASL_MECHANISM=GSSAPI"}, "must be one of PLAIN, SCRAM-SHA-256"},
		{[]string{"WALRELAY_KAFKA_SASL_MECHANISM=PLAIN"}, "WALRELAY_KAFKA_SASL_USERNAME=: is required"},
		{[]string{"WALRELAY_KAFKA_SASL_MECHANISM=PLAIN"}, "WALRELAY_KAFKA_SASL_PASSWORD=: is required"},
		{[]string{"WALRELAY_KAFKA_SASL_USERNAME=u"}, "needs WALRELAY_KAFKA_SASL_MECHANISM"},
		{[]string{"WALRELAY_KAFKA_SASL_PASSWORD=p"}, "WALRELAY_KAFKA_SASL_PASSWORD=(redacted): needs"},
		{[]string{"WALRELAY_KAFKA_SASL_PASSWORD_FILE=" + missing}, "must be a readable file: no such file"},
		{[]string{"WALRELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER"}, "WALRELAY_KAFKA_OAUTH_TOKEN_URL=: is required"},
		{[]string{"WALRELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER"}, "WALRELAY_KAFKA_OAUTH_CLIENT_ID=: is required"},
		{[]string{"WALRELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER"}, "WALRELAY_KAFKA_OAUTH_CLIENT_SECRET=: is required"},
		{
			[]string{"WALRELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER", "WALRELAY_KAFKA_SASL_USERNAME=u"},
			"needs WALRELAY_KAFKA_SASL_MECHANISM=PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512",
		},
		{[]string{"WALRELAY_KAFKA_OAUTH_SCOPES=s"}, "needs WALRELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER"},
		{[]string{"WALRELAY_KAFKA_OAUTH_AUDIENCE=a"}, "needs WALRELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER"},
		{[]string{"WALRELAY_KAFKA_OAUTH_TOKEN_URL=ftp://h/t"}, "must be an https URL without a user"},
		{[]string{"WALRELAY_KAFKA_OAUTH_TOKEN_URL=https://u:p@h/t"}, "must be an https URL without a user"},
		{[]string{"WALRELAY_KAFKA_OAUTH_EXTENSIONS=auth=x"}, "must list name=value"},
		{[]string{"WALRELAY_KAFKA_OAUTH_EXTENSIONS=a1=x"}, "must list name=value"},
		{[]string{"WALRELAY_KAFKA_OAUTH_EXTENSIONS=a"}, "must list name=value"},
		{[]string{"WALRELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE=" + missing}, "must be a readable file: no such file"},
		{[]string{"WALRELAY_KAFKA_SASL_MECHANISM=AWS_MSK_IAM"}, "WALRELAY_KAFKA_MSK_REGION=: is required"},
		{[]string{"WALRELAY_KAFKA_MSK_REGION=us east"}, "must be a region like eu-central-1"},
		{[]string{"WALRELAY_KAFKA_MSK_ROLE=relay"}, "must be the ARN of a role"},
		{[]string{"WALRELAY_ADMIN_ADDR=8080"}, "must be host:port or :port"},
		{[]string{"WALRELAY_ADMIN_TOKEN=too-short"}, "WALRELAY_ADMIN_TOKEN=(redacted): must be at least 16"},
		{[]string{"WALRELAY_ADMIN_TOKEN=sixteen and more spaces"}, "WALRELAY_ADMIN_TOKEN=(redacted): must be at least 16"},
		{[]string{"WALRELAY_ADMIN_TOKEN_FILE=" + missing}, "must be a readable file: no such file"},
		{[]string{"WALRELAY_PROGRESS_TIMEOUT=0s"}, "must be more than 0s"},
		{[]string{"WALRELAY_LOG_LEVEL=trace"}, "must be one of debug, info, warn, error"},
		{[]string{"WALRELAY_LOG_FORMAT=xml"}, "must be one of json, console"},
		{[]string{"WALRELAY_KAFKA_BROKER=a:1"}, "=(redacted): is not a setting; did you mean WALRELAY_KAFKA_BROKERS?"},
		{[]string{"WALRELAY_QUITE_ANOTHER_THING=1"}, "WALRELAY_QUITE_ANOTHER_THING=(redacted): is not a setting"},
	} {
		t.Run(strings.Join(test.env, " "), func(t *testing.T) {
			t.Parallel()
			r := execute(t, minimal(test.env...), "run")
			require.Equal(t, exitUsage, r.code)
			require.Contains(t, r.stderr, test.want)
		})
	}
}

func TestSettings_AllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	r := execute(t, []string{
		"WALRELAY_SLOT=UPPER", "WALRELAY_COMPRESSION=zip", "WALRELAY_STATUS_INTERVAL=soon",
		"WALRELAY_IN_FLIGHT_BYTES=1000", "WALRELAY_TABEL=x",
	}, "run", "--topic=a b")
	require.Equal(t, exitUsage, r.code)
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	require.Len(t, lines, 1+8, r.stderr)
	for _, name := range []string{
		"SLOT", "COMPRESSION", "STATUS_INTERVAL", "IN_FLIGHT_BYTES", "TABEL", "TOPIC", "DATABASE_URL", "KAFKA_BROKERS",
	} {
		require.Equal(t, 1, strings.Count(r.stderr, "  WALRELAY_"+name+"="), "%s in\n%s", name, r.stderr)
	}
	require.NotContains(t, r.stderr, "RECEIVE_TIMEOUT", "a rule about a value that could not be read says nothing new")
}

func TestSettings_ServiceLinksAreNotTypos(t *testing.T) {
	t.Parallel()
	_, r := configured(t, minimal(
		"WALRELAY_SERVICE_HOST=10.0.0.1", "WALRELAY_SERVICE_PORT=8080", "WALRELAY_SERVICE_PORT_METRICS=8080",
		"WALRELAY_PORT=tcp://10.0.0.1:8080", "WALRELAY_PORT_8080_TCP=tcp://10.0.0.1:8080",
		"WALRELAY_PORT_8080_TCP_PROTO=tcp", "WALRELAY_PORT_8080_TCP_ADDR=10.0.0.1", "WALRELAY_METRICS_SERVICE_HOST=10.0.0.2",
	))
	require.Equal(t, exitOK, r.code, r.stderr)

	_, r = configured(t, minimal("WALRELAY_DATABASE_PORT=5432"))
	require.Equal(t, exitUsage, r.code)
}

func TestSettings_PostgresVariablesNameTheServer(t *testing.T) {
	t.Parallel()
	// What they hold is read by pgx from the process's environment; here only that they suffice.
	_, r := configured(t, []string{"PGHOST=db.example", "WALRELAY_KAFKA_BROKERS=a:1"})
	require.Equal(t, exitOK, r.code, r.stderr)
}

func TestSettings_DocumentIsCurrent(t *testing.T) {
	t.Parallel()
	const path = "../../docs/configuration.md"
	r := execute(t, nil, "config", "--markdown")
	require.Equal(t, exitOK, r.code, r.stderr)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(r.stdout), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(have), r.stdout, "run go test ./cmd/walrelay -run DocumentIsCurrent -update")
	require.NotContains(t, r.stdout, "/tmp")
}

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "1000": 1000, "7B": 7, "1kB": 1000, "1KB": 1000, "2MB": 2e6, "1GB": 1e9,
		"1KiB": 1 << 10, "16MiB": 16 << 20, "16 MiB": 16 << 20, "1GiB": 1 << 30,
	} {
		var s Size
		require.NoError(t, s.UnmarshalText([]byte(text)))
		require.NoError(t, s.err, text)
		require.Equal(t, want, s.Bytes, text)
	}
	for _, text := range []string{"", "B", "1TB", "-1", "1.5MB", "1MiBB", "MB1", "9223372036854775807GiB", "1 0", "1  B"} {
		var s Size
		require.NoError(t, s.UnmarshalText([]byte(text)))
		require.Error(t, s.err, text)
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]Table{
		"outbox":                       {{"public", "outbox"}},
		"Shop.Outbox":                  {{"shop", "outbox"}},
		"a.b, c.d":                     {{"a", "b"}, {"c", "d"}},
		`"we ird"."Out""box"`:          {{"we ird", `Out"box`}},
		`"a,b"."c.d",e`:                {{"a,b", "c.d"}, {"public", "e"}},
		`"x""; DROP TABLE outbox; --"`: {{"public", `x"; DROP TABLE outbox; --`}},
		"münchen.ÄPFEL$1":              {{"münchen", "Äpfel$1"}}, // letters beyond ASCII do not fold
		strings.Repeat("n", 63):        {{"public", strings.Repeat("n", 63)}},
	} {
		tables, err := parseTables(text)
		require.NoError(t, err, text)
		require.Equal(t, want, tables, text)
	}
	for _, text := range []string{
		"", ",", "a,", ".a", "a.", `""`, `a."`, "1a", "a-b", strings.Repeat("n", 64), "\"a\x00\"",
	} {
		_, err := parseTables(text)
		require.Error(t, err, text)
	}
}

func TestSettings_Mappings(t *testing.T) {
	t.Parallel()
	var s Settings
	require.NoError(t, s.Tables.UnmarshalText([]byte("a.b,c")))
	require.NoError(t, s.ColumnKey.UnmarshalText([]byte("k")))
	m := s.Mappings([]string{"kind"})
	require.Len(t, m, 2)
	require.Equal(t, "public", m[1].Schema)
	require.Equal(t, "c", m[1].Table)
	require.Equal(t, "k", m[1].Key)
	require.Equal(t, []string{"kind"}, m[1].Route)
}

// A stream that was recorded before there were messages keeps its fingerprint, and so its epoch.
func TestSettings_Messages(t *testing.T) {
	t.Parallel()
	var s Settings
	require.NoError(t, s.Topic.UnmarshalText([]byte("t.{kind}")))
	require.NoError(t, s.ColumnKey.UnmarshalText([]byte("k")))
	require.NoError(t, s.ColumnID.UnmarshalText([]byte("id")))
	require.Nil(t, s.messages([]string{"kind"}))
	require.Equal(t, `topic="t.{kind}" key="k" id="id"`, s.routing())

	require.NoError(t, s.MessagePrefix.UnmarshalText([]byte(`My "outbox"`)))
	require.Len(t, s.messages([]string{"kind"}), 1)
	m := s.messages([]string{"kind"})[0]
	require.Equal(t, `messages "My ""outbox"""`, m.Name())
	require.Equal(t, []string{"kind"}, m.Route)
	require.Equal(t, "aggregateid", m.Key, "the envelope's names are fixed")
	require.Equal(t, `topic="t.{kind}" key="k" id="id" messages="My \"outbox\""`, s.routing())

	require.NoError(t, s.MessageBinaryPrefix.UnmarshalText([]byte("b")))
	require.True(t, s.messages(nil)[1].Binary)
	require.Equal(t, `topic="t.{kind}" key="k" id="id" messages="My \"outbox\"" binary-messages="b"`, s.routing())
}

// Tables may have columns of their own; what they share stays shared, and the fingerprint tells.
func TestSettings_TableColumns(t *testing.T) {
	t.Parallel()
	var s Settings
	s.Topic.Text, s.ColumnKey.Text, s.ColumnID.Text, s.ColumnHeaders.Text = "{kind}.{v}", "k", "id", "headers"
	require.NoError(t, s.Tables.UnmarshalText([]byte(`a, "B".c`)))
	before := s.routing()
	require.NoError(t, s.TableColumns.UnmarshalText([]byte(`"B".c : key = subject,headers=, {v}=version ;a:id=no`)))
	require.NoError(t, s.TableColumns.err)
	route := []string{"kind", "v"}
	m := s.Mappings(route)
	require.Equal(t, []string{"no", "k", "headers"}, []string{m[0].ID, m[0].Key, m[0].Headers})
	require.Equal(t, []string{"id", "subject", ""}, []string{m[1].ID, m[1].Key, m[1].Headers})
	require.Equal(t, []string{"kind", "v"}, m[0].Route)
	require.Equal(t, []string{"kind", "version"}, m[1].Route)
	require.Equal(t, []string{"kind", "v"}, route)
	require.Equal(t, before+` tables="B"."c":headers="","B"."c":key="subject","B"."c":{v}="version","public"."a":id="no"`,
		s.routing())
}

// A table's own time column is that of retention, replays and partitions, and decides about no event.
func TestSettings_TimeColumns(t *testing.T) {
	t.Parallel()
	var s Settings
	s.RetentionColumn.Text = "created_at"
	require.NoError(t, s.Tables.UnmarshalText([]byte(`a, "B".c`)))
	before := s.routing()
	require.NoError(t, s.TableColumns.UnmarshalText([]byte(`"B".c: retention=at`)))
	require.Equal(t, before, s.routing())
	tables := s.retentionConfig(zap.NewNop()).Tables
	require.Equal(t, []string{"created_at", "at"}, []string{tables[0].Column, tables[1].Column})
	var selection replay.Selection
	s.timeColumns(&selection)
	require.Equal(t, replay.Selection{TimeColumn: "created_at", TimeColumns: map[string]string{`"B".c`: "at"}}, selection)
	require.NoError(t, s.TableColumns.UnmarshalText([]byte(`"B".c: retention=at, id=no`)))
	require.Equal(t, before+` tables="B"."c":id="no"`, s.routing())
}

// Tables may have templates of their own for topic and key, in place of those that all have.
func TestSettings_TableTemplates(t *testing.T) {
	t.Parallel()
	var s Settings
	s.Topic.Text, s.ColumnKey.Text, s.ColumnID.Text, s.ColumnPayload.Text = "{kind}", "k", "id", "p"
	require.NoError(t, s.Tables.UnmarshalText([]byte("a,b,c")))
	require.NoError(t, s.TableColumns.UnmarshalText([]byte("a: topic=events.{Kind}.{b} ,key_template={x}:{y}; b: key=K")))
	m := s.Mappings([]string{"kind"})
	require.Equal(t, "events.{Kind}.{b}", m[0].Topic.String())
	require.Equal(t, []string{"id", "p", "Kind", "b", "x", "y"}, m[0].Required())
	require.Nil(t, m[1].Topic)
	require.Equal(t, []string{"id", "K", "p", "kind"}, m[1].Required())
	require.Equal(t, []string{"id", "k", "p", "kind"}, m[2].Required())

	s.KeyTemplate.Text = "{z}"
	m = s.Mappings([]string{"kind"})
	require.Equal(t, "{x}:{y}", m[0].KeyTemplate.String())
	require.Nil(t, m[1].KeyTemplate, "a table's own key wins")
	require.Equal(t, []string{"id", "p", "kind", "z"}, m[2].Required())
	require.Equal(t, `topic="{kind}" key="k" id="id" key_template="{z}" tables="public"."a":key_template="{x}:{y}",`+
		`"public"."a":topic="events.{Kind}.{b}","public"."b":key="K"`, s.routing())
}

// What decides about topics is told in the fingerprint, in one order; without it the fingerprint is the old one.
func TestSettings_TopicRules(t *testing.T) {
	t.Parallel()
	var s Settings
	s.Topic.Text, s.ColumnKey.Text, s.ColumnID.Text, s.ColumnType.Text = "t", "k", "id", "kind"
	s.TopicInvalid.Text = "refuse"
	require.Nil(t, s.topicRules())
	require.Equal(t, `topic="t" key="k" id="id"`, s.routing())
	require.NoError(t, s.TopicMap.UnmarshalText([]byte(" b=x=y , a = z")))
	require.NoError(t, s.TopicByType.UnmarshalText([]byte("Paid=billing")))
	s.TopicInvalid.Text = "replace"
	require.Equal(t, &sink.TopicRules{
		ByType: map[string]string{"Paid": "billing"}, Map: map[string]string{"b=x": "y", "a": "z"}, Replace: true,
	}, s.topicRules())
	require.Equal(t, `topic="t" key="k" id="id" map="a"="z","b=x"="y"`+
		` type="kind" by_type="Paid"="billing" invalid=replace`, s.routing())
}

func TestSecret_NeverShows(t *testing.T) {
	t.Parallel()
	var s Secret
	require.NoError(t, s.UnmarshalText([]byte("hunter2")))
	whole := Settings{KafkaSASLPassword: s}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t"} {
		fmt.Fprintf(&out, verb+" "+verb+" "+verb+"\n", s, &s, whole)
	}
	for _, v := range []any{s, &s, whole, map[string]any{"secret": s}} {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		out.Write(b)
	}
	require.NotContains(t, out.String(), "hunter2")
	require.NotContains(t, out.String(), fmt.Sprintf("%x", "hunter2"))
	require.Contains(t, out.String(), redacted)
	require.Equal(t, "hunter2", s.Reveal())
}
