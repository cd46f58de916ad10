package cdc

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

// Instance is a walrelay process at the stream's slot, as the server sees it. Columns that the role may not
// see keep their zero value: those of other roles' sessions take pg_monitor.
type Instance struct {
	PID         int32
	Active      bool // it reads the slot; others wait for it
	Application string
	Client      string    // address; empty on a Unix socket
	Since       time.Time // when its session began, on the server's clock
	State       string    // of the active one's WAL sender: startup, catchup, streaming, stopping
}

// maxInstances limits what is read and shown.
const maxInstances = 32

// readInstances lists the active session, first, and the presences of those that wait. It is nil, without an
// error, where the role may not read the server's activity at all.
func readInstances(ctx context.Context, db *pgx.Conn, slot string, active int32) ([]Instance, error) {
	// application_name is visible to all roles, address and start are not:
	// https://www.postgresql.org/docs/current/monitoring-stats.html#MONITORING-PG-STAT-ACTIVITY-VIEW
	rows, err := db.Query(ctx, `
		SELECT a.pid, a.pid = $1, coalesce(a.application_name, ''), coalesce(host(a.client_addr), ''),
			coalesce(a.backend_start, '0001-01-01 00:00:00Z'), coalesce(r.state, '')
		FROM pg_stat_activity a LEFT JOIN pg_stat_replication r ON r.pid = a.pid
		WHERE a.pid = $1 OR a.datname = current_database() AND right(a.application_name, length($2)) = $2
		ORDER BY a.pid = $1 DESC, a.backend_start, a.pid LIMIT $3`, active, presenceMark(slot), maxInstances)
	if err != nil {
		return nil, hiddenActivity(err)
	}
	instances, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Instance])
	return instances, hiddenActivity(err)
}

// hiddenActivity leaves out the error of a role from which the views were revoked.
func hiddenActivity(err error) error {
	if sqlState(err) == "42501" { // insufficient_privilege
		return nil
	}
	return err
}

// presence is the session by which a standby shows itself: between its attempts to get the slot it has no
// other, and nobody could tell a standby from none. Only the stream's goroutine uses it.
type presence struct {
	cfg  *Config
	log  *zap.Logger
	conn *pgx.Conn
}

// presenceTimeout limits what showing itself may cost a standby, which is about to try again.
const presenceTimeout = time.Second

// presenceMark ends the application_name of a standby. The server keeps 63 bytes of that, so a slot's name of
// more than 54 counts by its beginning.
func presenceMark(slot string) string {
	const kind = " standby "
	return kind + slot[:min(len(slot), maxName-len(kind))]
}

// maxName is PostgreSQL's NAMEDATALEN - 1, in bytes.
const maxName = 63

// show makes sure that the session stands, and returns its process id, 0 if it does not: it is of no
// importance to the stream.
func (p *presence) show(ctx context.Context) (pid int32) {
	ctx, cancel := context.WithTimeout(ctx, presenceTimeout)
	defer cancel()
	if p.conn != nil && p.conn.Ping(ctx) != nil {
		p.hide(ctx)
	}
	if p.conn == nil {
		if err := p.appear(ctx); err != nil {
			p.log.Debug("cannot show that this instance stands by", zap.Error(err))
			p.hide(ctx)
			return 0
		}
	}
	return int32(p.conn.PgConn().PID())
}

func (p *presence) appear(ctx context.Context) (err error) {
	if p.conn, err = connectSQL(ctx, p.cfg); err != nil {
		return err
	}
	mark, name := presenceMark(p.cfg.Slot), p.conn.Config().RuntimeParams["application_name"]
	name = name[:min(len(name), maxName-len(mark))]
	_, err = p.conn.Exec(ctx, "SELECT set_config('application_name', $1, false)", name+mark)
	return err
}

// hide ends the session.
func (p *presence) hide(ctx context.Context) {
	if p.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), presenceTimeout)
	defer cancel()
	_ = p.conn.Close(ctx) // it is of no use any more, however it ends
	p.conn = nil
}
