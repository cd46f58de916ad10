package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	relayUser     = "walrelay" // in PostgreSQL and in Kafka
	relayPassword = "right"
	otherPassword = "wrong"
	mechanism     = "SCRAM-SHA-512" // of walrelay's login to Kafka
)

// accessRules ask walrelay for its password, and nobody else.
func accessRules() []string {
	return []string{
		"local all all trust",
		"local replication all trust",
		"host all " + relayUser + " 127.0.0.1/32 scram-sha-256",
		"host all all 127.0.0.1/32 trust",
	}
}

// createRelayUsers creates walrelay's role and its Kafka user.
func (w *world) createRelayUsers(ctx context.Context) error {
	if err := w.setKafkaPassword(ctx, relayPassword); err != nil {
		return err
	}
	return w.sql(ctx, "CREATE ROLE "+relayUser+" LOGIN REPLICATION PASSWORD '"+relayPassword+"'")
}

// grant gives walrelay's role the least that it needs: these are the lines of docs/operations.md.
func (w *world) grant(ctx context.Context) error {
	return w.sql(ctx,
		"GRANT CONNECT ON DATABASE "+w.db.Name+" TO "+relayUser,
		"GRANT USAGE ON SCHEMA walrelay, public TO "+relayUser,
		"GRANT SELECT ON walrelay.schema_version TO "+relayUser,
		"GRANT SELECT, INSERT, UPDATE, DELETE ON walrelay.streams, walrelay.releases, walrelay.dead_letters TO "+relayUser,
		"GRANT SELECT ON public."+strings.Join(tables, ", public.")+" TO "+relayUser)
}

// changeRole makes PostgreSQL refuse walrelay's password. What is connected already stays so, unless
// somebody ends it.
func changeRole(ctx context.Context, w *world, hold func()) error {
	change := pick(w.random, "PASSWORD '"+otherPassword+"'", "VALID UNTIL 'yesterday'")
	w.t.Logf("        %s", change)
	if err := w.sql(ctx, "ALTER ROLE "+relayUser+" "+change); err != nil {
		return err
	}
	if !await(ctx, stepLimit, func(ctx context.Context) bool {
		var left int
		err := w.db.Conn.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE usename = $1`, relayUser).Scan(&left)
		return err == nil && left == 0
	}) {
		return errors.New("walrelay's sessions do not end")
	}
	hold()
	if name, _ := w.streaming(ctx); name != "" {
		return fmt.Errorf("%s streams, though its password is refused", name)
	}
	return w.sql(ctx, "ALTER ROLE "+relayUser+" PASSWORD '"+relayPassword+"' VALID UNTIL 'infinity'")
}

// changeKafkaPassword makes the brokers refuse walrelay's password. They ask for it on new connections
// alone, so the old ones are cut, once all brokers know.
func changeKafkaPassword(ctx context.Context, w *world, hold func()) error {
	if err := w.setKafkaPassword(ctx, otherPassword); err != nil {
		return err
	}
	for _, wire := range w.kafka {
		var err error
		if !await(ctx, stepLimit, func(ctx context.Context) bool {
			err = login(ctx, wire.addr())
			return errors.Is(err, kerr.SaslAuthenticationFailed)
		}) {
			return fmt.Errorf("a broker does not refuse the old password: %w", err)
		}
	}
	for _, wire := range w.kafka {
		if err := wire.cutAndMend(); err != nil {
			return err
		}
	}
	hold()
	return w.setKafkaPassword(ctx, relayPassword)
}

func (w *world) setKafkaPassword(ctx context.Context, password string) error {
	answers, err := w.cluster.Admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{
		{User: relayUser, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: password},
	})
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		return fmt.Errorf("set password in Kafka: %w", err)
	}
	return nil
}

// login tries walrelay's own password on one broker.
func login(ctx context.Context, addr string) error {
	auth := scram.Auth{User: relayUser, Pass: relayPassword}
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.SASL(auth.AsSha512Mechanism()))
	if err != nil {
		return fmt.Errorf("open client: %w", err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return client.Ping(ctx)
}
