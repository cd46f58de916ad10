package cdc

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

func TestDiagnose(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		code, text string
		fatal      string // a part of the line; empty: worth another try
	}{
		{"28P01", "password authentication failed", ""},
		{"28000", "no pg_hba.conf entry", ""},
		{"3D000", `database "x" does not exist`, "create it"},
		{"42501", "must be superuser or replication role to start walsender", "REPLICATION"},
		{"42501", "permission denied to start WAL sender", "rds_replication"},
		{"42501", `permission denied for database "shop"`, `GRANT CONNECT ON DATABASE "shop" TO the role`},
		{"42501", "permission denied for schema walrelay", "GRANT USAGE ON SCHEMA walrelay TO the role"},
		{
			"42501", "permission denied for table releases",
			"GRANT SELECT, INSERT, UPDATE, DELETE ON walrelay.releases TO the role",
		},
		{"42501", "permission denied for table replays", "GRANT SELECT, INSERT, UPDATE ON walrelay.replays TO the role"},
		{"42501", "permission denied for table outbox", "GRANT SELECT ON outbox TO the role"},
		{"42704", `publication "p" does not exist`, "new-epoch"},
		{"42704", `replication slot "s" does not exist`, "new-epoch"},
		{"42P01", `relation "walrelay.streams" does not exist`, "walrelay migrate"},
		{"55000", `cannot read from logical replication slot "s"`, "was invalidated"},
		{"55000", `can no longer access replication slot "s"`, "was invalidated"},
		{"55000", `replication slot "s" was not created in this database`, "another database"},
		{"55000", "logical decoding requires wal_level >= logical", "wal_level"},
		{"55000", "replication slots cannot be used on RO (Read Only) node", ""},
		{"55000", "Replication slots cannot be used on RO node", ""},
		{"55000", "recovery is in progress", ""},
		{"55000", "eine andere Sprache", ""},
		{"08P01", "unsupported startup parameter: replication", "connect directly"},
		{"08P01", "invalid message", ""},
		{"08006", "connection failure", ""},
		{"53300", "sorry, too many clients already", ""},
		{"57P01", "terminating connection due to administrator command", ""},
		{"57P03", "the database system is starting up", ""},
		{"58P01", "requested WAL segment 000000010000000000000001 has already been removed", "drop the slot"},
		{"58P01", "could not open file", ""},
		{"25006", "cannot execute INSERT in a read-only transaction", ""},
		{"XX000", "internal", ""},
	} {
		t.Run(test.code+" "+test.text, func(t *testing.T) {
			t.Parallel()
			server := &pgconn.PgError{Severity: "FATAL", Code: test.code, Message: test.text}
			err := Diagnose(fmt.Errorf("start replication: %w", server))
			require.ErrorIs(t, err, server)
			require.Equal(t, test.fatal != "", Fatal(err))
			require.Contains(t, err.Error(), test.text)
			require.Contains(t, err.Error(), test.fatal)
			require.Equal(t, err, Diagnose(err))
		})
	}
}

func TestDiagnose_SlotActive(t *testing.T) {
	t.Parallel()
	for text, pid := range map[string]int32{
		`replication slot "s1" is active for PID 4711`:                4711,
		`Replikations-Slot »s1« ist aktiv für PID 4711.`:              4711,
		`replication slot is active`:                                  0,
		`replication slot "s" is active for PID 99999999999999999999`: 0,
	} {
		err := Diagnose(&pgconn.PgError{Code: "55006", Message: text})
		var active *SlotActiveError
		require.ErrorAs(t, err, &active)
		require.Equal(t, pid, active.PID)
		require.False(t, Fatal(err))
	}
}

func TestDiagnose_LeavesOthersAlone(t *testing.T) {
	t.Parallel()
	require.NoError(t, Diagnose(nil))
	for _, err := range []error{context.Canceled, errors.New("dial tcp: refused")} {
		require.Equal(t, err, Diagnose(err))
	}
}
