package migrations

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

const header = `-- What %[2]s needs in this database, for psql or any other client. One transaction: all or nothing.
-- It can be run again, also after an upgrade: what exists is left as it is.
BEGIN;

-- The lock waits for a walrelay that migrates by itself at this moment.
%[1]s
`

const recordVersion = `INSERT INTO %[2]s (version_id, is_applied)
    SELECT %[1]d, true WHERE NOT EXISTS (SELECT FROM %[2]s WHERE version_id = %[1]d);
`

// write writes the SQL of all migrations, together with the rows that record them as applied.
func (s set) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, header, s.createVersions(), s.user)
	fmt.Fprintf(&b, recordVersion, 0, s.versionTable()) // goose's mark of a table that it knows

	names, err := fs.Glob(files, s.dir+"/*.sql") // in the order of their names, which is that of their versions
	if err != nil {
		return fmt.Errorf("list migrations: %w", err)
	}
	for _, file := range names {
		text, err := files.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read migration: %w", err)
		}
		number, _, _ := strings.Cut(path.Base(file), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return fmt.Errorf("read version of %s: %w", file, err)
		}
		fmt.Fprintf(&b, "\n-- %s\n", name(file))
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "-- +goose") {
				b.WriteString(line)
			}
		}
		fmt.Fprintf(&b, recordVersion, version, s.versionTable())
	}
	b.WriteString("\nCOMMIT;\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("print migrations: %w", err)
	}
	return nil
}
