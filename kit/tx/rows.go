package tx

import (
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// stdRows are pgx.Rows over those of database/sql. pgx/stdlib decodes some types for database/sql and
// leaves the others as text; here each value is bytes again, so that pgx scans it as it scans its own.
type stdRows struct {
	rows   *sql.Rows
	conn   *pgx.Conn
	fields []pgconn.FieldDescription
	values [][]byte
	count  int64
	err    error
	closed bool
}

var _ pgx.Rows = (*stdRows)(nil)

var errNotPgx = errors.New("the driver of this database/sql handle is not pgx/stdlib")

func newStdRows(rows *sql.Rows, conn *pgx.Conn) (*stdRows, error) {
	r := &stdRows{rows: rows, conn: conn}
	if conn == nil {
		return r, r.fail(errNotPgx)
	}
	columns, err := rows.ColumnTypes()
	if err != nil {
		return r, r.fail(fmt.Errorf("read columns: %w", err))
	}
	for _, column := range columns {
		r.fields = append(r.fields, pgconn.FieldDescription{
			Name: column.Name(), DataTypeOID: oid(conn.TypeMap(), column.DatabaseTypeName()),
		})
	}
	r.values = make([][]byte, len(columns))
	return r, nil
}

// oid resolves what pgx/stdlib calls a type: its name in capitals, or its OID when pgx doesn't know it.
func oid(types *pgtype.Map, name string) uint32 {
	if t, ok := types.TypeForName(strings.ToLower(name)); ok {
		return t.OID
	}
	number, _ := strconv.ParseUint(name, 10, 32) // 0, unknown: scanned as text
	return uint32(number)
}

// Next implements pgx.Rows.
func (r *stdRows) Next() bool {
	if r.closed {
		return false
	}
	if !r.rows.Next() {
		r.Close()
		return false
	}
	row := make([]any, len(r.values))
	dest := make([]any, len(r.values))
	for i := range row {
		dest[i] = &row[i]
	}
	err := r.rows.Scan(dest...)
	for i, value := range row {
		if err == nil {
			err = r.set(i, value)
		}
	}
	r.count++
	return r.fail(err) == nil
}

// set keeps a value as the server might have sent it.
func (r *stdRows) set(i int, value any) (err error) {
	field := &r.fields[i]
	field.Format = pgtype.TextFormatCode
	switch v := value.(type) {
	case nil:
		r.values[i] = nil
	case string:
		r.values[i] = []byte(v)
	case []byte:
		r.values[i] = v
		if field.DataTypeOID == pgtype.ByteaOID {
			field.Format = pgtype.BinaryFormatCode
		}
	default: // numbers, booleans and times
		field.Format = pgtype.BinaryFormatCode
		r.values[i], err = r.conn.TypeMap().Encode(field.DataTypeOID, field.Format, v, nil)
	}
	if err != nil {
		return fmt.Errorf("convert column %s: %w", field.Name, err)
	}
	return nil
}

// Scan implements pgx.Rows.
func (r *stdRows) Scan(dest ...any) error {
	if r.closed {
		return r.closedError()
	}
	if len(dest) == 1 {
		if scanner, ok := dest[0].(pgx.RowScanner); ok {
			return r.fail(scanner.ScanRow(r))
		}
	}
	return r.fail(pgx.ScanRow(r.conn.TypeMap(), r.fields, r.values, dest...))
}

// Values implements pgx.Rows.
func (r *stdRows) Values() ([]any, error) {
	if r.closed {
		return nil, r.closedError()
	}
	values := make([]any, len(r.values))
	dest := make([]any, len(values))
	for i := range values {
		dest[i] = &values[i]
	}
	if err := r.Scan(dest...); err != nil {
		return nil, err
	}
	return values, nil
}

// Close implements pgx.Rows.
func (r *stdRows) Close() {
	if r.closed {
		return
	}
	r.closed = true
	err := r.rows.Close()
	if r.err = r.rows.Err(); r.err == nil {
		r.err = err
	}
}

// fail closes the rows upon an error, as pgx does, and returns it.
func (r *stdRows) fail(err error) error {
	if err != nil {
		r.err = err
		r.closed = true
		_ = r.rows.Close()
	}
	return err
}

func (r *stdRows) closedError() error {
	if r.err != nil {
		return r.err
	}
	return errors.New("rows is closed")
}

// Err implements pgx.Rows.
func (r *stdRows) Err() error { return r.err }

// CommandTag implements pgx.Rows. It holds the number of rows read.
func (r *stdRows) CommandTag() pgconn.CommandTag { return tag(r.count) }

// FieldDescriptions implements pgx.Rows, with names and types alone.
func (r *stdRows) FieldDescriptions() []pgconn.FieldDescription { return r.fields }

// RawValues implements pgx.Rows.
func (r *stdRows) RawValues() [][]byte { return r.values }

// Conn implements pgx.Rows.
func (r *stdRows) Conn() *pgx.Conn { return r.conn }

// TypeMap implements pgx.Rows.
func (r *stdRows) TypeMap() *pgtype.Map {
	if r.conn == nil {
		return nil
	}
	return r.conn.TypeMap()
}
