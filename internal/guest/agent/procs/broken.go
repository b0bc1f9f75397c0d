package procs

import (
	"errors"
	"fmt"
	"os"

	"connectrpc.com/connect"
)

// shellPath is a program in every image that can run commands.
const shellPath = "/bin/sh"

// shell distinguishes a sandbox that has lost its system files from one that never had them.
type shell struct {
	path string
	had  bool // it existed when the agent started, before the snapshot
}

func newShell(path string) shell {
	_, err := os.Stat(path)
	return shell{path, err == nil}
}

// explain returns the error for a command that could not start. Its code is CodeDataLoss if the
// sandbox has lost its shell.
func (s shell) explain(err error) error {
	if !s.had {
		return err
	}
	if _, gone := os.Stat(s.path); !errors.Is(gone, os.ErrNotExist) {
		return err
	}
	var told *connect.Error
	if errors.As(err, &told) {
		err = errors.New(told.Message())
	}
	return connect.NewError(connect.CodeDataLoss,
		fmt.Errorf("the sandbox's system files are gone: its snapshot had %s, and it is missing: %w", s.path, err))
}
