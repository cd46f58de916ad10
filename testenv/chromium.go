package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"
)

// Browser opens an empty page in a headless Chromium, which the tests of this process share, and closes it
// with the test. The context is for chromedp.Run. Pages share neither storage nor cache. A machine that has
// no Chromium gets Debian's, unpacked into the cache; where that cannot be had the test is skipped.
func Browser(t testing.TB) context.Context {
	t.Helper()
	program, err := findChromium()
	if err != nil {
		t.Skipf("no browser, so the status page is not tested: install Chromium, or set WALRELAY_TEST_CHROMIUM: %v", err)
	}
	browser := share(t, "chromium", func() (*chromium, error) { return startChromium(program) })
	ctx, cancel := chromedp.NewContext(browser.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("open a page: %v", err)
	}
	return ctx
}

// chromium is a running browser, with one page of its own that keeps the connection.
type chromium struct {
	child *child
	ctx   context.Context
	end   context.CancelFunc
}

func startChromium(program *exec.Cmd) (*chromium, error) {
	profile, err := serverDir("chromium")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program.Path,
		"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--no-first-run", "--disable-extensions", "--disable-component-update", "--disable-background-networking",
		"--disable-sync", "--disable-default-apps", "--metrics-recording-only", "--password-store=basic",
		"--remote-debugging-address=127.0.0.1", "--remote-debugging-port=0", "--user-data-dir="+profile, "about:blank")
	cmd.Env = append(program.Environ(), "HOME="+profile)
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	c := &chromium{}
	if c.child, err = startChild(cmd); err != nil {
		return nil, err
	}
	// The browser writes its port and path there once it listens.
	var address []byte
	poll(time.Minute, func() bool {
		address, _ = os.ReadFile(filepath.Join(profile, "DevToolsActivePort"))
		return bytes.Count(address, []byte("\n")) > 0 || c.child.exited()
	})
	port, path, found := strings.Cut(strings.TrimSpace(string(address)), "\n")
	if !found {
		_ = c.child.stop(syscall.SIGKILL, time.Minute)
		return nil, fmt.Errorf("start %s: it does not listen\n%s", program.Path, tail([]byte(out.String()), 30))
	}
	allocator, endAllocator := remote.NewAllocator(context.Background(), "ws://127.0.0.1:"+port+path, remote.NoModifyURL)
	ctx, endBrowser := chromedp.NewContext(allocator)
	c.ctx, c.end = ctx, func() {
		endBrowser()
		endAllocator()
	}
	if err := chromedp.Do(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the browser: %w", err), c.close())
	}
	return c, nil
}

func (c *chromium) close() error {
	c.end()
	return c.child.stop(syscall.SIGKILL, time.Minute)
}

// findChromium returns a command with the program and the environment that it needs.
var findChromium = sync.OnceValues(func() (*exec.Cmd, error) {
	names := []string{"chromium", "chromium-browser", "google-chrome", "chrome-headless-shell"}
	if named := os.Getenv("WALRELAY_TEST_CHROMIUM"); named != "" {
		names = []string{named}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return exec.Command(path), nil
		}
	}
	if runtime.GOOS != "linux" || len(names) == 1 {
		return nil, fmt.Errorf("none of %s is there", strings.Join(names, ", "))
	}
	return unpackChromium()
})

// unpackChromium fetches Debian's packages, as the user that we are, and unpacks them beside the other artifacts.
func unpackChromium() (*exec.Cmd, error) {
	cache, err := artifactDir()
	if err != nil {
		return nil, err
	}
	root, err := cached(filepath.Join(cache, "chromium"), func(dir string) error {
		if err := fetchChromium(dir); err != nil {
			return err
		}
		trial := chromiumIn(dir)
		trial.Args = append(trial.Args, "--version")
		if out, err := trial.CombinedOutput(); err != nil {
			return fmt.Errorf("try Debian's Chromium: %w\n%s", err, tail(out, 10))
		}
		return nil
	})
	return chromiumIn(root), err
}

// chromiumIn is the unpacked program with the libraries and fonts that were unpacked with it.
func chromiumIn(root string) *exec.Cmd {
	var libraries []string
	for _, pattern := range []string{"usr/lib/*-linux-*", "lib/*-linux-*", "usr/lib/*-linux-*/pulseaudio"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // an error is one of the pattern
		libraries = append(libraries, found...)
	}
	cmd := exec.Command(filepath.Join(root, "usr/lib/chromium/chromium"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	if _, err := os.Stat("/etc/fonts/fonts.conf"); err != nil {
		cmd.Env = append(cmd.Env, "FONTCONFIG_SYSROOT="+root)
	}
	return cmd
}

// fetchChromium fills root with Chromium and what this machine lacks of the packages that it depends on. apt
// gets directories of its own, so that it needs no rights and changes nothing of the system's.
func fetchChromium(root string) error {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		return errors.New("fetch Chromium: this is no Debian")
	}
	work := root + ".apt"
	defer os.RemoveAll(work) //nolint:errcheck // of no harm when it stays
	for _, dir := range []string{"state/lists/partial", "cache/archives/partial", "log"} {
		if err := os.MkdirAll(filepath.Join(work, dir), 0o755); err != nil {
			return fmt.Errorf("fetch Chromium: %w", err)
		}
	}
	apt := []string{
		"-o", "Dir::State=" + work + "/state", "-o", "Dir::State::status=/var/lib/dpkg/status",
		"-o", "Dir::Cache=" + work + "/cache", "-o", "Dir::Log=" + work + "/log", "-o", "Debug::NoLocking=true",
		"-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=20", "-qq",
	}
	run := func(name string, args ...string) error {
		cmd := exec.Command(name, args...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if _, err := runChild(cmd); err != nil {
			return fmt.Errorf("fetch Chromium: %s: %w\n%s", name, err, tail(out.Bytes(), 10))
		}
		return nil
	}
	if err := run("apt-get", append(apt, "update")...); err != nil {
		return err
	}
	install := []string{"install", "--yes", "--download-only", "--no-install-recommends", "chromium"}
	if err := run("apt-get", append(apt, install...)...); err != nil {
		return err
	}
	packages, err := filepath.Glob(filepath.Join(work, "cache/archives/*.deb"))
	if err != nil {
		return fmt.Errorf("fetch Chromium: %w", err)
	}
	for _, deb := range packages {
		if err := run("dpkg-deb", "--extract", deb, root); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(root, "usr/lib/chromium/chromium")); err != nil {
		return fmt.Errorf("fetch Chromium: the package brings no program: %w", err)
	}
	return nil
}
