package testenv

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// nobody is who runs PostgreSQL when we are root, which it refuses.
const nobody = 65534

var directories atomic.Int64

// defaultSettings suit many small tests on one server: logical decoding, much room, and no care for
// a crash of the machine (that of a process loses nothing with fsync off).
func defaultSettings() map[string]string {
	return map[string]string{
		"listen_addresses":           "127.0.0.1",
		"wal_level":                  "logical",
		"max_replication_slots":      "64",
		"max_wal_senders":            "64",
		"max_connections":            "200",
		"max_prepared_transactions":  "50",
		"fsync":                      "off",
		"full_page_writes":           "off",
		"shared_buffers":             "64MB",
		"dynamic_shared_memory_type": "mmap", // lies in the data directory and goes with it
		"log_replication_commands":   "on",
		"log_line_prefix":            "%m [%p] %d ",
		"log_timezone":               "UTC",
	}
}

// newPostgres starts a server on a fresh copy of the template.
func newPostgres(major int, cfg Config) (*Server, error) {
	programs, err := unpackPostgres(major)
	if err != nil {
		return nil, err
	}
	s, err := layPostgres(major, programs)
	if err != nil {
		return nil, err
	}
	if err := copyTree(programs+"-template", s.Dir, nil); err != nil {
		return nil, fmt.Errorf("copy template: %w", err)
	}
	if err := s.configure(defaultSettings(), cfg); err != nil {
		return nil, err
	}
	return s, s.start()
}

// layPostgres makes a directory for a server to be, and reserves its port.
func layPostgres(major int, programs string) (*Server, error) {
	port, err := reservePort()
	if err != nil {
		return nil, err
	}
	home, err := serverDir(profile(major))
	if err != nil {
		return nil, err
	}
	if err := give(home); err != nil { // for the socket
		return nil, err
	}
	return &Server{
		Major: major, Port: port, Socket: home,
		Dir: filepath.Join(home, "data"), LogFile: filepath.Join(home, "server.log"),
		programs: programs,
	}, nil
}

// serverDir makes a directory for one server below workDir.
func serverDir(name string) (string, error) {
	work, err := workDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(work, name+"-"+strconv.FormatInt(directories.Add(1), 10))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("make server directory: %w", err)
	}
	return dir, nil
}

// configure appends settings, of which the last one counts, and writes the files.
func (s *Server) configure(defaults map[string]string, cfg Config) error {
	settings := maps.Clone(defaults)
	settings["port"] = strconv.Itoa(s.Port)
	settings["unix_socket_directories"] = s.Socket
	maps.Copy(settings, cfg.Settings)
	var conf strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&conf, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	if err := s.append("postgresql.conf", conf.String()); err != nil {
		return err
	}
	if cfg.HBA != nil {
		if err := s.write("pg_hba.conf", []byte(strings.Join(cfg.HBA, "\n")+"\n")); err != nil {
			return err
		}
	}
	for name, content := range cfg.Files {
		if err := s.write(name, content); err != nil {
			return err
		}
	}
	return nil
}

// write puts a file into the data directory.
func (s *Server) write(name string, content []byte) error {
	path := filepath.Join(s.Dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write server file: %w", err)
	}
	return give(path)
}

func (s *Server) append(name, text string) error {
	f, err := os.OpenFile(filepath.Join(s.Dir, name), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// command is one of the server's programs, to be run by a user that it accepts.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	return postgresCommand(s.programs, name, args...)
}

func postgresCommand(programs, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(programs, "bin", name), args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.Dir = "/"
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd
}

// give makes the server's user the owner of a file.
func give(path string) error {
	if os.Getuid() != 0 {
		return nil
	}
	if err := os.Lchown(path, nobody, nobody); err != nil {
		return fmt.Errorf("give file to the server: %w", err)
	}
	return nil
}

// unpackPostgres returns the directory of the programs of a major. Beside it, with the suffix
// -template, lies an initialised data directory to copy.
func unpackPostgres(major int) (string, error) {
	version, err := artifactVersion(profile(major))
	if err != nil {
		return "", err
	}
	shared, err := sharedDir()
	if err != nil {
		return "", err
	}
	programs, err := cached(filepath.Join(shared, profile(major)+"-"+version), func(dir string) error {
		jars, err := fetch(profile(major))
		if err != nil {
			return err
		}
		return untar(jars, dir)
	})
	if err != nil {
		return "", err
	}
	_, err = cached(programs+"-template", func(dir string) error {
		if err := errors.Join(os.Chmod(dir, 0o700), give(dir)); err != nil {
			return fmt.Errorf("prepare template: %w", err)
		}
		initdb := postgresCommand(programs, "initdb", "--pgdata", dir, "--username", "postgres",
			"--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync")
		var out bytes.Buffer
		initdb.Stdout, initdb.Stderr = &out, &out
		if _, err := runChild(initdb); err != nil {
			return fmt.Errorf("run initdb: %w\n%s", err, tail(out.Bytes(), 30))
		}
		return nil
	})
	return programs, err
}

// untar unpacks the one archive in the one jar of a directory.
func untar(jars, dir string) error {
	found, err := filepath.Glob(filepath.Join(jars, "*.jar"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("find jar in %s: %d there", jars, len(found))
	}
	jar, err := zip.OpenReader(found[0])
	if err != nil {
		return fmt.Errorf("open jar: %w", err)
	}
	defer jar.Close() //nolint:errcheck // only read
	for _, entry := range jar.File {
		if !strings.HasSuffix(entry.Name, ".txz") {
			continue
		}
		archive, err := entry.Open()
		if err != nil {
			return fmt.Errorf("open archive: %w", err)
		}
		tar := exec.Command("tar", "--extract", "--xz", "--no-same-owner", "--directory", dir)
		tar.Stdin = archive
		if _, err := runChild(tar); err != nil {
			return fmt.Errorf("unpack archive: %w", errors.Join(err, archive.Close()))
		}
		return archive.Close()
	}
	return fmt.Errorf("find archive in %s: none there", found[0])
}

// copyTree copies a data directory, with the rights and for the user that PostgreSQL wants. Files may
// vanish meanwhile: it may be that of a running server. What skip names stays behind.
func copyTree(from, to string, skip func(rel string) bool) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(from, path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case skip != nil && skip(rel):
			return nil
		}
		target := filepath.Join(to, rel)
		if entry.IsDir() {
			err = os.Mkdir(target, 0o700)
		} else if err = copyFile(path, target); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return give(target)
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
