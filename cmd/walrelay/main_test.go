package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

var update = flag.Bool("update", false, "write generated documents instead of comparing them")

func TestMain(m *testing.M) { testenv.VerifyMain(m) }

// result is what a command left behind.
type result struct {
	code           int
	stdout, stderr string
}

// execute runs a command in this process.
func execute(t *testing.T, env []string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, env, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// minimal is the least environment of a stream.
func minimal(more ...string) []string {
	return append([]string{
		"WALRELAY_DATABASE_URL=postgres://relay:hunter2@db.example:5433/shop",
		"WALRELAY_KAFKA_BROKERS=kafka-1:9092,[::1]:9093",
	}, more...)
}

// A command that a signal stops says so, and nothing of what that led to.
func TestRun_Interrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("%w interrupt", errSignal))
	for _, args := range [][]string{{"doctor"}, {"slot", "show"}, {"migrate", "up"}, {"deadletters", "redrive", "--all"}} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitError, run(ctx, args, minimal(), &stdout, &stderr), args)
		require.Equal(t, "walrelay: stopped by signal interrupt\n", stderr.String(), args)
		require.Empty(t, stdout.String(), args)
	}
}

func TestRun_ExitCodes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		code int
		text string
	}{
		"help":             {[]string{"--help"}, exitOK, "Usage: walrelay"},
		"command's help":   {[]string{"run", "--help"}, exitOK, "--kafka-brokers"},
		"version":          {[]string{"version"}, exitOK, "walrelay "},
		"no command":       {nil, exitUsage, "To begin, set WALRELAY_DATABASE_URL"},
		"half a command":   {[]string{"slot"}, exitUsage, "expected one of"},
		"a URL":            {[]string{"run", "postgres://u:p@h"}, exitUsage, "unexpected argument (redacted);"},
		"unknown command":  {[]string{"walk"}, exitUsage, "walk"},
		"unknown flag":     {[]string{"run", "--kafka-broker=x"}, exitUsage, "--kafka-broker"},
		"no verdict":       {[]string{"stream", "release", "x"}, exitUsage, "--verdict"},
		"unknown verdict":  {[]string{"stream", "release", "x", "--verdict=no"}, exitUsage, "retry"},
		"wrong position":   {[]string{"stream", "release", "x", "--verdict=skip"}, exitUsage, "not a position"},
		"nothing required": {[]string{"run"}, exitUsage, "WALRELAY_KAFKA_BROKERS=: is required"},
		"only a database":  {[]string{"migrate", "status"}, exitUsage, "WALRELAY_DATABASE_URL=: is required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := execute(t, nil, test.args...)
			require.Equal(t, test.code, r.code, r.stderr)
			require.Contains(t, r.stdout+r.stderr, test.text)
		})
	}
}

func TestRun_CommandErrorExitsWith1(t *testing.T) {
	t.Parallel()
	// Nothing listens on port 1.
	r := execute(t, []string{"WALRELAY_DATABASE_URL=postgres://relay:hunter2@127.0.0.1:1/shop?connect_timeout=2"},
		"migrate", "status")
	require.Equal(t, exitError, r.code)
	require.NotEmpty(t, r.stderr)
	require.NotContains(t, r.stdout+r.stderr, "hunter2")
}

func TestMigratePrint_NeedsNoDatabase(t *testing.T) {
	t.Parallel()
	r := execute(t, nil, "migrate", "print")
	require.Equal(t, exitOK, r.code, r.stderr)
	require.Contains(t, r.stdout, "public.outbox")
	require.NotContains(t, r.stdout, "walrelay_kit")

	r = execute(t, nil, "migrate", "print", "--kit")
	require.Equal(t, exitOK, r.code, r.stderr)
	require.Contains(t, r.stdout, "walrelay_kit")
	require.NotContains(t, r.stdout, "public.outbox")
}

func TestSignals_FirstCancelsSecondAborts(t *testing.T) {
	t.Parallel()
	signals, aborted := make(chan os.Signal), make(chan struct{})
	ctx := withSignals(context.Background(), signals, func() { close(aborted) })
	require.NoError(t, ctx.Err())

	signals <- os.Interrupt
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), errSignal)
	require.ErrorContains(t, context.Cause(ctx), "interrupt")
	select {
	case <-aborted:
		require.Fail(t, "one signal must not abort")
	default:
	}

	signals <- os.Interrupt
	<-aborted
}
