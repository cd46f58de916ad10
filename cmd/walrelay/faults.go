package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// faults collects everything that is wrong with the configuration, so that one start names it all.
type faults struct{ list []fault }

// fault is one wrong setting: which, what it was given (redacted where secret), and the rule it breaks.
type fault struct{ variable, value, rule string }

func (f fault) Error() string { return f.variable + "=" + f.value + ": " + f.rule }

// check adds a fault unless ok. A setting that could not even be read has been listed already.
func (f *faults) check(ok bool, in *input, format string, args ...any) {
	if !ok && in.err == nil {
		f.add(in, fmt.Sprintf(format, args...))
	}
}

func (f *faults) add(in *input, rule string) {
	f.list = append(f.list, fault{in.variable, in.shown(), rule})
}

// err is nil without faults, and otherwise a usageError with one line for each.
func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	lines := make([]string, 0, len(f.list)+1)
	lines = append(lines, "wrong configuration")
	for _, fault := range f.list {
		lines = append(lines, "  "+fault.Error())
	}
	return usageError{errors.New(strings.Join(lines, "\n"))}
}

// usageError marks an error as the user's, for the exit code.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// reason is the cause of a file error without operation and path, which the fault names anyway.
func reason(err error) string {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err.Error()
	}
	return err.Error()
}
