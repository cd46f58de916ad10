package testenv

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Python returns the environment variables under which python3 finds the packages of a requirements file, which pip
// fetches into the cache the first time. The test is skipped on a machine that has no Python, or cannot fetch them.
func Python(t testing.TB, requirements string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(requirements)
	if err != nil {
		t.Fatalf("read requirements: %v", err)
	}
	// Packages with compiled parts are good for one version of Python.
	version, err := exec.Command("python3", "-c", "import sys; print(sys.implementation.cache_tag, end='')").Output()
	if err != nil {
		t.Skipf("SKIPPED: python3 does not run on this machine (%v), so nothing in Python was tested", err)
	}
	cache, err := artifactDir()
	if err != nil {
		t.Fatalf("find cache: %v", err)
	}
	name := fmt.Sprintf("python-%s-%.8x", version, sha256.Sum256(text))
	dir, err := cached(filepath.Join(cache, name), func(dir string) error {
		pip := exec.Command("python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
			"--requirement", requirements, "--target", dir)
		var out bytes.Buffer
		pip.Stdout, pip.Stderr = &out, &out
		if _, err := runChild(pip); err != nil {
			return fmt.Errorf("%w\n%s", err, tail(out.Bytes(), 10))
		}
		return nil
	})
	if err != nil {
		t.Skipf("SKIPPED: pip does not fetch %s (%v), so nothing in Python was tested", requirements, err)
	}
	return map[string]string{"PYTHONPATH": dir, "PYTHONDONTWRITEBYTECODE": "1"}
}
