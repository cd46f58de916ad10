package cdc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/decoder"
	"github.com/walrelay/walrelay/testenv"
)

// Everything that a role lacks is found, and what the findings say is enough.
func TestExamine_LeastPrivilege(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		db.Exec(t, "CREATE SCHEMA shop; ALTER TABLE events SET SCHEMA shop")
		cfg.Mappings[0].Schema = "shop"
		role := asRole(t, db, cfg, "NOREPLICATION")

		findings := examine(t, cfg)
		require.Equal(t, `ALTER ROLE "`+role+`" REPLICATION`, found(t, findings, "replication-connection").Fix)
		require.Equal(t, `ALTER ROLE "`+role+`" REPLICATION`, found(t, findings, "replication-role").Fix)
		require.Contains(t, found(t, findings, "publication").Fix, "CREATE PUBLICATION")
		require.Contains(t, found(t, findings, "outbox-privileges").Fix, "GRANT USAGE ON SCHEMA")
		for _, f := range findings {
			if f.Check != "slot-wal-limit" && f.Level != LevelOK && f.Level != LevelUnknown {
				carryOut(t, db, f.Fix)
			}
		}
		findings = examine(t, cfg)
		for _, f := range findings {
			if f.Check != "slot-wal-limit" && f.Check != "open-transactions" { // those of other tests are hidden
				require.Equal(t, LevelOK, f.Level, "%+v", f)
			}
		}
		_, err := dial(t, cfg).Preflight(t.Context())
		require.NoError(t, err)
		register(t, cfg)
	})
}

func TestExamine_Providers(t *testing.T) {
	t.Parallel()
	for provider, fix := range map[string][3]string{
		"rds_superuser": {
			"ParameterName=rds.logical_replication,ParameterValue='1',ApplyMethod=pending-reboot",
			"ParameterName=max_slot_wal_keep_size,ParameterValue='51200',ApplyMethod=immediate",
			`GRANT rds_replication TO "relay"`,
		},
		"cloudsqlsuperuser": {
			"--database-flags=cloudsql.logical_decoding=on", "--database-flags=max_slot_wal_keep_size=51200",
			`ALTER ROLE "relay" REPLICATION`,
		},
		"azure_pg_admin": {
			"--name wal_level --value 'logical'", "--name max_slot_wal_keep_size --value '51200'",
			`ALTER ROLE "relay" REPLICATION`,
		},
	} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			server := testenv.StartPostgres(t, 15, testenv.Config{Settings: map[string]string{"wal_level": "replica"}})
			db, cfg := streamOn(t, server)
			db.Exec(t, "CREATE ROLE "+provider)
			db.Exec(t, "CREATE ROLE rds_replication")
			db.Exec(t, "CREATE ROLE relay LOGIN")
			findings := examine(t, cfg)
			require.Contains(t, found(t, findings, "wal-level").Fix, fix[0])
			require.Contains(t, found(t, findings, "slot-wal-limit").Fix, fix[1])
			for _, f := range findings {
				require.NotContains(t, f.Fix, "ALTER SYSTEM")
			}
			cfg.ConnString = Secret("host=127.0.0.1 sslmode=disable user=relay dbname=" + db.Name + " port=" + portOf(server))
			require.Equal(t, fix[2], found(t, examine(t, cfg), "replication-role").Fix)
		})
	}
}

func TestExamine_MessagePrivileges(t *testing.T) {
	forMajors(t, func(t *testing.T, major int) {
		db, cfg := newStream(t, major)
		absent(t, examine(t, cfg), "message-privileges")
		cfg.Messages = []*decoder.Mapping{decoder.MessageMapping("orders", nil)}
		mended(t, db, cfg, "message-privileges", LevelWarning, "every role")
	})
}
