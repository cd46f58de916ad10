package deploy

import (
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// build runs the Dockerfile's own build command, once for all tests, and returns the binary.
var build = sync.OnceValues(func() (string, error) {
	dockerfile, err := os.ReadFile("Dockerfile")
	if err != nil {
		return "", err
	}
	step := regexp.MustCompile(`(?m)^RUN (.*\\\n.* go build .*)$`).FindSubmatch(dockerfile)
	if step == nil {
		return "", fmt.Errorf("the Dockerfile has no go build")
	}
	binary := filepath.Join(directory, "walrelay")
	command := strings.Replace(string(step[1]), "-o /walrelay", "-o "+binary, 1)
	shell := exec.Command("/bin/sh", "-c", command)
	shell.Dir = ".."
	shell.Env = append(os.Environ(), "TARGETOS="+runtime.GOOS, "TARGETARCH="+runtime.GOARCH)
	if output, err := shell.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, output)
	}
	return binary, os.Chmod(directory, 0o755)
})

func TestImage_BinaryIsStatic(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the image's binary runs on Linux only")
	}
	binary, err := build()
	require.NoError(t, err)
	file, err := elf.Open(binary)
	require.NoError(t, err)
	defer file.Close()
	for _, segment := range file.Progs {
		require.NotEqual(t, elf.PT_INTERP, segment.Type, "it wants a loader, which the image does not have")
	}
	require.Nil(t, file.Section(".symtab"), "not stripped")
}

// As in the image: an unprivileged user, and nothing in the file system but the binary.
func TestImage_BinaryRunsAlone(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("changing the root directory needs root")
	}
	_, err := build()
	require.NoError(t, err)
	dockerfile := read(t, "Dockerfile")
	require.Contains(t, dockerfile, "USER 65532:65532\n")
	require.Contains(t, dockerfile, `ENTRYPOINT ["/walrelay"]`)
	command := exec.CommandContext(t.Context(), "/walrelay", "version")
	command.Dir, command.Env = "/", []string{}
	command.SysProcAttr = &syscall.SysProcAttr{
		Chroot: directory, Credential: &syscall.Credential{Uid: 65532, Gid: 65532},
	}
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Contains(t, string(output), "walrelay ")
}

// The golang image does not fetch another toolchain by itself.
func TestImage_GoVersion(t *testing.T) {
	t.Parallel()
	version := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(read(t, "../go.mod"))[1]
	require.Contains(t, read(t, "Dockerfile"), "ARG GO_VERSION="+version+"\n")
}

// accepted runs walrelay config with the variables.
func accepted(t *testing.T, variables map[string]string) {
	t.Helper()
	binary, err := build()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), binary, "config")
	command.Env = []string{}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		command.Env = append(command.Env, name+"="+variables[name])
	}
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	for name := range variables {
		require.Contains(t, string(output), name+"=")
	}
}

// secrets lays a database URL, a password and a token where a secret store would.
func secrets(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	url := []byte("postgres://walrelay:secret@db.example.com/shop\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "database-url"), url, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kafka-password"), []byte("secret"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "admin-token"), []byte("sixteen-and-more"), 0o600))
	return dir
}

func TestCompose_IsAccepted(t *testing.T) {
	t.Parallel()
	services := at(t, parse(t, "compose.yaml"), "services")
	variables := make(map[string]string)
	for name, value := range at(t, services, "walrelay", "environment").(map[string]any) {
		variables[name] = regexp.MustCompile(`\$\{\w+:-(\w*)\}`).ReplaceAllString(fmt.Sprint(value), "$1")
	}
	require.Contains(t, variables, "WALRELAY_DATABASE_URL")
	accepted(t, variables)
	// Nobody waits for a service that is not there.
	for name, service := range services.(map[string]any) {
		if dependencies, ok := service.(map[string]any)["depends_on"]; ok {
			for dependency, how := range dependencies.(map[string]any) {
				require.Contains(t, services, dependency, name)
				if at(t, how, "condition") == "service_healthy" {
					require.Contains(t, at(t, services, dependency), "healthcheck")
				}
			}
		}
	}
}

func TestSystemd_IsAccepted(t *testing.T) {
	t.Parallel()
	for name, uncomment := range map[string]string{"as it is": "^$", "with everything": `(?m)^#(\w+=)`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with := func(path string) string {
				return regexp.MustCompile(uncomment).ReplaceAllString(read(t, path), "$1")
			}
			unit, variables := with("systemd/walrelay.service"), make(map[string]string)
			line := regexp.MustCompile(`(?m)^(?:Environment=)?(WALRELAY_\w+)=(.*)$`)
			for _, match := range line.FindAllStringSubmatch(unit+with("systemd/walrelay.env"), -1) {
				variables[match[1]] = strings.ReplaceAll(match[2], "%d", secrets(t))
				_, credential, ok := strings.Cut(match[2], "%d/")
				require.True(t, !ok || strings.Contains(unit, "\nLoadCredential="+credential+":"), credential)
			}
			accepted(t, variables)
		})
	}
}

func TestHelm_IsAccepted(t *testing.T) {
	t.Parallel()
	values := read(t, "helm/walrelay/values.yaml")
	all := regexp.MustCompile(`(?m)^  # (WALRELAY_\w+: )`).ReplaceAllString(values, "  $1")
	require.NotEqual(t, values, all)
	for _, text := range []string{values, all} {
		var document any
		require.NoError(t, yaml.Unmarshal([]byte(text), &document))
		dir, variables := secrets(t), make(map[string]string)
		for name, value := range at(t, document, "env").(map[string]any) {
			if name != "WALRELAY_KAFKA_TLS_CA_FILE" { // needs a certificate
				variables[name] = strings.ReplaceAll(value.(string), "/run/secrets/walrelay", dir)
			}
		}
		accepted(t, variables)
	}
}
