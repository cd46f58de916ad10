package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

const leakToken = "s3cr3t-of-those-who-watch"

// forms are how a text may show: as it is, in hexadecimal, and in base64 at each of the three alignments.
func forms(text string) []string {
	all := []string{text, hex.EncodeToString([]byte(text))}
	for _, before := range []string{"", "-", "--"} {
		encoded := base64.StdEncoding.EncodeToString([]byte(before + text))
		if core := encoded[4 : len(encoded)-4]; len(core) >= 8 { // what the neighbours do not change
			all = append(all, core)
		}
	}
	return all
}

// secrets is everything that may not be seen.
func (l *locked) secrets(t *testing.T) (all []string) {
	t.Helper()
	for _, mark := range []string{
		"s3cr3t", databasePassword, brokerPassword, clientSecret, leakToken, collectorSecret,
		payloadMark, keyMark, headerMark, aggregateMark,
	} {
		all = append(all, forms(mark)...)
	}
	for _, file := range []string{"key.pem", "other-key.pem"} {
		key, err := os.ReadFile(l.file(file))
		require.NoError(t, err)
		all = append(all, strings.Split(string(key), "\n")[1])
	}
	for _, token := range l.tokens() {
		all = append(all, token[strings.LastIndexByte(token, '.')+1:])
	}
	return all
}

// loaded is a setup in which everything is secret that can be.
func (l *locked) loaded(t *testing.T, server *testenv.Server) *setup {
	t.Helper()
	s := newBare(t, server, l.Cluster, 2)
	s.set("WALRELAY_DATABASE_URL", withPassword(t, s.db, databasePassword))
	s.run("migrate")
	l.enter(s, "OAUTHBEARER")
	s.db.Exec(t, "ALTER TABLE public.outbox ALTER aggregatetype DROP NOT NULL")
	s.limit(s.topic, topicLimit)
	s.cluster.CreateTopic(t, s.dead(), 1, nil)
	for name, value := range map[string]string{
		"DEAD_LETTER_TOPIC": s.dead(), "COLUMN_TIMESTAMP": "created_at", "MESSAGE_PREFIX": "app.outbox",
		"ADMIN_TOKEN": leakToken,
		"ON_POISON":   "skip", "PROGRESS_TIMEOUT": "1s", "PRODUCE_TIMEOUT": "1s",
	} {
		s.set("WALRELAY_"+name, value)
	}
	return s
}

// marked is a row of which everything but id and topic is a mark.
func marked(r row) row {
	r.key = keyMark
	if r.aggregate == "no topic" {
		r.aggregate = aggregateMark
	}
	if r.headers == "" {
		r.headers = `{"name": "` + headerMark + `"}`
	} else {
		r.headers = strings.NewReplacer(`"a"`, `"`+headerMark+`"`, `"x"`, `"`+headerMark+`"`).Replace(r.headers)
	}
	if r.payload == "" {
		r.payload = `"` + payloadMark + `"`
	} else {
		r.payload = `"` + payloadMark + r.payload[1:]
	}
	return r
}

// Whatever goes well or wrong: no log line at the level debug, no metric, span, page, command or error shows a secret
// or a part of an event.
func TestSecurity_Leaks(t *testing.T) {
	t.Parallel()
	l := newLocked(t)
	server := lockedServer(t, lastMajor())
	nobody := freeAddr(t)
	type scenario struct {
		name  string
		env   map[string]string // on top, without WALRELAY_
		given func(s *setup)
		code  int // of /readyz
		parts []string
	}
	scenarios := []scenario{
		{name: "success", code: 200, parts: []string{"streaming"}},
		{name: "success in the format for people", env: map[string]string{"LOG_FORMAT": "console"}, code: 200},
		{
			name: "exactly once", env: map[string]string{"DELIVERY": "exactly-once", "CREATE_TOPICS": "true"},
			code: 200, parts: []string{"streaming"},
		},
		{
			name: "the key of a dead letter is followed", code: 200,
			env: map[string]string{"ON_POISON": "dead-letter", "DEAD_LETTER_FOLLOW_KEY": "true"},
		},
		{name: "another password of the database", env: map[string]string{
			"DATABASE_URL": "postgres://postgres:s3cr3t-but-wrong@127.0.0.1:" + fmt.Sprint(server.Port) +
				"/postgres?sslmode=disable",
		}, code: 503, parts: []string{"password authentication failed"}},
		{name: "no database", env: map[string]string{
			"DATABASE_URL": "host=127.0.0.1 port=" + nobody[strings.LastIndexByte(nobody, ':')+1:] +
				" user=postgres dbname=x password='" + keywordPassword + "'",
		}, code: 503, parts: []string{"connection refused"}},
		{name: "no TLS at the database", env: map[string]string{
			"DATABASE_URL": "postgres://postgres:s3cr3t@127.0.0.1:" + fmt.Sprint(server.Port) + "/postgres?sslmode=require",
		}, code: 503, parts: []string{"TLS"}},
		{
			name: "no broker", env: map[string]string{"KAFKA_BROKERS": nobody},
			code: 503, parts: []string{"connection refused"},
		},
		{
			name: "another authority", env: map[string]string{"KAFKA_TLS_CA_FILE": l.file("other-ca.pem")},
			code: 503, parts: []string{"unknown authority"},
		},
		{name: "another client certificate", env: map[string]string{
			"KAFKA_TLS_CERT_FILE": l.file("other-cert.pem"), "KAFKA_TLS_KEY_FILE": l.file("other-key.pem"),
		}, code: 503, parts: []string{"remote error"}},
		{
			name: "another client secret", env: map[string]string{"KAFKA_OAUTH_CLIENT_SECRET": "s3cr3t-but-wrong"},
			code: 503, parts: []string{"invalid_client"},
		},
		{
			name: "no token endpoint", env: map[string]string{"KAFKA_OAUTH_TOKEN_URL": "http://" + nobody + "/token"},
			code: 503, parts: []string{"connection refused"},
		},
		{name: "a topic is missing", given: func(s *setup) {
			s.insertRow(1, marked(row{aggregate: "elsewhere"}))
		}, code: 503, parts: []string{"elsewhere"}},
		{
			name: "a message is no envelope", env: map[string]string{"ON_POISON": "stop"}, code: 503, parts: []string{"stuck"},
			given: func(s *setup) { s.emitRaw(`{"` + payloadMark + `": ` + payloadMark) },
		},
	}
	for _, policy := range []string{"skip", "dead-letter"} {
		scenarios = append(scenarios, scenario{
			name: "poison, " + policy, env: map[string]string{"ON_POISON": policy}, code: 200,
			given: func(s *setup) {
				for i, p := range poisons {
					s.insertRow(i+10, marked(p.row))
				}
				action := map[string]string{"skip": "skipped", "dead-letter": "dead-lettered"}[policy]
				require.Eventually(s.t, func() bool {
					return s.metric("walrelay_poison_events_total", `action="`+action+`"`) == float64(len(poisons))
				}, wait, tick)
			},
		})
	}
	for i, p := range poisons {
		scenarios = append(scenarios, scenario{
			name: "poison, stop: " + p.name, env: map[string]string{"ON_POISON": "stop"}, code: 503, parts: []string{"stuck"},
			given: func(s *setup) {
				s.insertRow(i+10, marked(p.row))
			},
		})
	}
	for _, test := range scenarios {
		t.Run(test.name, func(t *testing.T) {
			s := l.loaded(t, server)
			spans := newCollector(t, s)
			for name, value := range test.env {
				s.set("WALRELAY_"+name, value)
			}
			var texts []string
			relay := s.start()
			if test.code == 200 || test.given != nil {
				s.ready(200, "streaming")
			}
			if test.given != nil {
				test.given(s)
			}
			s.insertRow(2, marked(row{}))
			s.ready(test.code, test.parts...)
			if test.code == 200 {
				require.Eventually(t, func() bool { return len(spans.received()) > 0 }, wait, tick)
			}
			texts = append(texts, s.observe()...)
			for _, command := range []string{"config", "migrate status", "stream show", "doctor", "doctor --json"} {
				texts = append(texts, s.says(strings.Fields(command)...))
			}
			relay.Signal(t, terminate)
			relay.Wait(t, wait)
			var ledger string
			require.NoError(t, s.db.QueryRow(t, "SELECT coalesce(string_agg(d::text, ' '), '') FROM walrelay.dead_letters d").
				Scan(&ledger))
			texts = append(texts, relay.Log(), ledger)
			texts = append(texts, spans.sent()...)
			for _, secret := range l.secrets(t) {
				for _, text := range texts {
					require.NotContains(t, text, secret)
				}
			}
		})
	}
}

// says runs a command, however it ends, and returns what it wrote.
func (s *setup) says(args ...string) string {
	s.t.Helper()
	p := testenv.StartProcess(s.t, testenv.Command{Path: testenv.Binary(s.t), Args: args, Env: s.env})
	require.LessOrEqual(s.t, p.Wait(s.t, wait), 2)
	require.NotEmpty(s.t, p.Stdout()+p.Log(), args)
	return p.Stdout() + p.Log()
}
