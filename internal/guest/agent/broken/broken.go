// Package broken distinguishes a sandbox that has lost its system files, for example by `rm -rf
// /usr/bin`, from one that never had them. It owns a list of files that existed when the agent
// started, before the snapshot. Beware: it only explains errors. A program that still starts is
// no error.
package broken

import (
	"errors"
	"fmt"
	"os"

	"connectrpc.com/connect"
)

// System returns the files that programs of most images need: a shell, and the dynamic loader that
// each program names (glibc, musl).
func System() []string {
	return []string{"/bin/sh", "/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"}
}

// Files is a list of files that existed. The zero value is empty.
type Files struct{ had []string }

// Watch returns those of the paths that exist.
func Watch(paths ...string) (f Files) {
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			f.had = append(f.had, p)
		}
	}
	return f
}

// Explain returns the error for a program that could not start. Its code is CodeDataLoss if a file
// of the list is missing. Otherwise it is err.
func (f Files) Explain(err error) error {
	for _, p := range f.had {
		if _, gone := os.Stat(p); errors.Is(gone, os.ErrNotExist) {
			return lost(p, err)
		}
	}
	return err
}

func lost(path string, err error) error {
	var told *connect.Error
	if errors.As(err, &told) {
		err = errors.New(told.Message())
	}
	return connect.NewError(connect.CodeDataLoss,
		fmt.Errorf("the sandbox's system files are gone: its snapshot had %s, and it is missing: %w", path, err))
}
