package cdc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// provider is who runs the server: managed services do not have ALTER SYSTEM. Empty: whoever connects.
type provider string

const (
	providerRDS      provider = "rds" // Aurora included
	providerCloudSQL provider = "cloudsql"
	providerAzure    provider = "azure"
)

// findProvider recognises managed services by the roles that each of them makes.
func (e *examination) findProvider(ctx context.Context) error {
	err := e.server.SQL.QueryRow(ctx, `
		SELECT CASE rolname WHEN 'rds_superuser' THEN 'rds' WHEN 'cloudsqlsuperuser' THEN 'cloudsql' ELSE 'azure' END
		FROM pg_roles WHERE rolname IN ('rds_superuser', 'cloudsqlsuperuser', 'azure_pg_admin')
		ORDER BY rolname LIMIT 1`).Scan(&e.provider)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

// reload changes a setting that a running server takes over.
func (p provider) reload(setting, value string) string {
	if p == "" {
		return "ALTER SYSTEM SET " + setting + " = " + quoteLiteral(value) + "; SELECT pg_reload_conf()"
	}
	return p.set(setting, value, "immediate")
}

// restart changes a setting that only a starting server takes over.
func (p provider) restart(setting, value string) string {
	if p == "" {
		return "ALTER SYSTEM SET " + setting + " = " + quoteLiteral(value) + "; then restart PostgreSQL"
	}
	switch {
	case setting == "wal_level" && p == providerRDS:
		setting, value = "rds.logical_replication", "1"
	case setting == "wal_level" && p == providerCloudSQL:
		setting, value = "cloudsql.logical_decoding", "on"
	}
	return p.set(setting, value, "pending-reboot") + "; then restart the instance"
}

func (p provider) set(setting, value, method string) string {
	value = megabytes(value)
	switch p {
	case providerRDS:
		return fmt.Sprintf("aws rds modify-db-parameter-group --db-parameter-group-name GROUP --parameters "+
			"ParameterName=%s,ParameterValue='%s',ApplyMethod=%s", setting, value, method)
	case providerCloudSQL:
		return fmt.Sprintf("gcloud sql instances patch INSTANCE --database-flags=%s=%s, with all flags that are set already",
			setting, value)
	default:
		return fmt.Sprintf("az postgres flexible-server parameter set --resource-group GROUP --server-name SERVER "+
			"--name %s --value '%s'", setting, value)
	}
}

// megabytes drops the unit of a size, since managed services take sizes of log in megabytes only.
func megabytes(value string) string {
	for unit, factor := range map[string]int64{"GB": 1 << 10, "MB": 1} {
		if n, err := strconv.ParseInt(strings.TrimSuffix(value, unit), 10, 64); err == nil && strings.HasSuffix(value, unit) {
			return strconv.FormatInt(n*factor, 10)
		}
	}
	return value
}
