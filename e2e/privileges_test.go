package e2e

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walrelay/walrelay/testenv"
)

// documented are the blocks of a language in docs/operations.md that begin so.
func documented(t *testing.T, language, begin string) (blocks []string) {
	t.Helper()
	page, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	for _, block := range strings.Split(string(page), "```"+language+"\n")[1:] {
		code, _, _ := strings.Cut(block, "```")
		if strings.HasPrefix(code, begin) {
			blocks = append(blocks, code)
		}
	}
	require.NotEmpty(t, blocks, "the page has nothing that begins with %s", begin)
	return blocks
}

// privilege is one right to one thing: SELECT on walrelay.streams, USAGE on SCHEMA public.
type privilege struct{ right, object string }

func (p privilege) String() string { return p.right + " ON " + p.object }

var grantSQL = regexp.MustCompile(`(?s)^GRANT (.+) ON (SCHEMA |DATABASE |)(.+) TO walrelay$`)

// granted takes the statements of the documentation apart.
func granted(t *testing.T, sql string) (all []privilege) {
	t.Helper()
	for statement := range strings.SplitSeq(sql, ";") {
		statement = strings.TrimSpace(statement)
		if statement == "" || strings.HasPrefix(statement, "CREATE ROLE") {
			continue
		}
		parts := grantSQL.FindStringSubmatch(statement)
		require.NotNil(t, parts, statement)
		for right := range strings.SplitSeq(parts[1], ",") {
			for object := range strings.SplitSeq(parts[3], ",") {
				all = append(all, privilege{strings.TrimSpace(right), parts[2] + strings.TrimSpace(object)})
			}
		}
	}
	require.NotEmpty(t, all)
	return all
}

// The documented role can do everything, and whichever of its rights is missing, a message names it.
func TestPrivileges_OfTheRole(t *testing.T) {
	t.Parallel()
	testenv.ForMajors(t, func(t *testing.T, major int) {
		s := newBare(t, lockedServer(t, major), testenv.Kafka(t), 1)
		s.set("WALRELAY_DATABASE_URL", withPassword(t, s.db, databasePassword))
		s.run("migrate")
		names := strings.NewReplacer("'…'", "'s3cr3t-of-the-role'", "DATABASE shop", "DATABASE "+s.db.Name)
		least := names.Replace(documented(t, "sql", "CREATE ROLE walrelay")[0])
		more := names.Replace(documented(t, "sql", "GRANT USAGE ON SCHEMA public TO walrelay")[0])
		// What every role has anyway would hide what is missing.
		s.db.Exec(t, "REVOKE ALL ON DATABASE "+s.db.Name+" FROM PUBLIC; REVOKE ALL ON SCHEMA public FROM PUBLIC")
		s.db.Exec(t, least)
		s.set("WALRELAY_DATABASE_URL",
			strings.Replace(withPassword(t, s.db, "s3cr3t-of-the-role"), "//postgres:", "//walrelay:", 1))

		f := follow(s)
		relay := s.relay()
		require.Contains(t, relay.Log(), `unknown`, "how many rows there were may not be known")
		f.delivers()
		poisoned := f.number()
		s.insertRow(poisoned, row{aggregate: "no topic"})
		at := s.stuck(poisoned, "")
		for _, verdict := range []string{"retry", "skip"} { // the second one is an UPDATE
			s.run("stream", "release", at.String(), "--verdict", verdict)
		}
		f.delivers()
		s.stop(relay)

		for _, p := range granted(t, least) {
			s.db.Exec(t, "REVOKE "+p.String()+" FROM walrelay")
			switch p {
			case privilege{"INSERT", "walrelay.releases"}, privilege{"UPDATE", "walrelay.releases"}:
				text := s.fails(1, "stream", "release", at.String(), "--verdict", "skip")
				require.Contains(t, text, "table releases", p)
				require.Contains(t, text, "GRANT SELECT, INSERT, UPDATE, DELETE ON walrelay.releases", p)
			default:
				text := s.fails(1, "run")
				require.Contains(t, text, p.right, p)
				require.Contains(t, text, strings.TrimPrefix(strings.ReplaceAll(p.object, `"`, ""), "DATABASE "), p)
			}
			s.db.Exec(t, "GRANT "+p.String()+" TO walrelay")
		}
		s.db.Exec(t, "ALTER ROLE walrelay NOREPLICATION")
		require.Contains(t, s.fails(1, "run"), "REPLICATION")
		s.db.Exec(t, "ALTER ROLE walrelay REPLICATION")

		require.Contains(t, s.fails(1, "migrate", "status"), "schema_version")
		s.db.Exec(t, more)
		s.run("migrate", "status")
		s.idle()
		s.run("stream", "new-epoch")
		s.dropSlot()
		relay = s.relay()
		require.Contains(t, relay.Log(), `existing_rows":"\"public\".\"outbox\": 3`)
		s.stop(relay)
	})
}

// acl is one operation on a resource, as kafka-acls.sh has it.
type acl struct {
	operation, kind, name string
	prefixed              bool
}

// allowed takes the commands of the documentation apart.
func allowed(t *testing.T, script string, names *strings.Replacer) (all []acl) {
	t.Helper()
	script = strings.ReplaceAll(script, "\\\n", " ")
	for line := range strings.SplitSeq(strings.TrimSpace(script), "\n") {
		words := strings.Fields(line)
		var a acl
		var operations []string
		for i, word := range words {
			switch word {
			case "--operation":
				operations = append(operations, words[i+1])
			case "--topic", "--transactional-id":
				a.kind, a.name = strings.TrimPrefix(word, "--"), names.Replace(words[i+1])
			case "--resource-pattern-type":
				a.prefixed = words[i+1] == "prefixed"
			case "--allow-principal":
				require.Equal(t, "User:walrelay", words[i+1])
			}
		}
		require.NotEmpty(t, operations, line)
		for _, a.operation = range operations {
			all = append(all, a)
		}
	}
	return all
}

// builder is the ACL for the administration client.
func (a acl) builder(t *testing.T) *kadm.ACLBuilder {
	t.Helper()
	operation, err := kmsg.ParseACLOperation(a.operation)
	require.NoError(t, err)
	b := kadm.NewACLs().Allow("User:walrelay").AllowHosts("*").Operations(operation).
		ResourcePatternType(kadm.ACLPatternLiteral)
	if a.prefixed {
		b.ResourcePatternType(kadm.ACLPatternPrefixed)
	}
	if a.kind == "topic" {
		return b.Topics(a.name)
	}
	return b.TransactionalIDs(a.name)
}

// The documented ACLs are enough, and whichever is missing, a message names it.
func TestPrivileges_OfThePrincipal(t *testing.T) {
	t.Parallel()
	const listener = "listener.name.client."
	cluster := testenv.StartKafka(t, testenv.KafkaConfig{
		Listener: &testenv.Listener{Protocol: "SASL_PLAINTEXT"},
		Settings: map[string]string{
			listener + "sasl.enabled.mechanisms": "PLAIN",
			listener + "plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required " +
				`user_walrelay="` + brokerPassword + `";`,
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":           "User:ANONYMOUS",
		},
	})
	settles := func(a acl, there bool) { // the broker has it later than the controller has answered
		require.Eventually(t, func() bool {
			found, err := cluster.Admin.DescribeACLs(t.Context(), a.builder(t))
			return err == nil && len(found) == 1 && found[0].Err == nil && len(found[0].Described) > 0 == there
		}, wait, tick, "%v: %t", a, there)
	}
	allow := func(all ...acl) {
		for _, a := range all {
			_, err := cluster.Admin.CreateACLs(t.Context(), a.builder(t))
			require.NoError(t, err)
			settles(a, true)
		}
	}
	blocks := documented(t, "sh", "kafka-acls.sh")
	require.Len(t, blocks, 2, "the least, and what exactly-once delivery needs beside")
	for i, delivery := range []string{"at-least-once", "exactly-once"} {
		t.Run(delivery, func(t *testing.T) {
			s := newPoisonedOn(t, testenv.Postgres(t, lastMajor()), cluster, "dead-letter")
			if i > 0 {
				s.exactly()
			}
			dead, states := "letters."+s.slot, "states."+s.slot // which the prefix does not cover
			cluster.CreateTopic(t, dead, 1, nil)
			cluster.CreateTopic(t, states, 1, map[string]string{"cleanup.policy": "compact"})
			s.set("WALRELAY_DEAD_LETTER_TOPIC", dead)
			s.set("WALRELAY_STATE_TOPIC", states)
			s.set("WALRELAY_KAFKA_BROKERS", cluster.ListenerAddrs()[0])
			s.set("WALRELAY_KAFKA_SASL_MECHANISM", "PLAIN")
			s.set("WALRELAY_KAFKA_SASL_USERNAME", "walrelay")
			s.set("WALRELAY_KAFKA_SASL_PASSWORD", brokerPassword)
			names := strings.NewReplacer("outbox.event.", s.prefix, "walrelay.dead-letters", dead,
				"walrelay.state", states, "walrelay-walrelay", "walrelay-"+s.slot)
			all := allowed(t, strings.Join(blocks[:i+1], ""), names)
			allow(all...)
			f := follow(s)
			passes := func() {
				s.insertRow(f.number(), row{aggregate: "no topic"})
				f.delivers()
			}
			relay := s.relay()
			passes()
			require.NotContains(t, relay.Log(), "grant DESCRIBE_CONFIGS")
			s.stop(relay)

			for _, a := range all {
				t.Log("without", a)
				_, err := cluster.Admin.DeleteACLs(t.Context(), a.builder(t))
				require.NoError(t, err)
				settles(a, false)
				relay := s.start()
				want := map[string]string{
					"Write": "WRITE", "Read": "READ", "DescribeConfigs": "DESCRIBE_CONFIGS",
				}[a.operation]
				s.insertRow(f.number(), row{aggregate: "no topic"})
				f.writes()
				require.Eventually(t, func() bool {
					return strings.Contains(relay.Log(), want) && strings.Contains(relay.Log(), a.name)
				}, wait, tick)
				allow(a)
				f.delivers() // by itself
				s.stop(relay)
			}
		})
	}
}
