package server

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/spawner/wire"
)

// Wait waits until the daemon has had the users of this process's namespace mapped, and executes this
// program again: who executes as root there has the namespace's capabilities, which a process without a
// map has lost. It returns only if that failed.
func Wait() error {
	mapped := os.NewFile(wire.FDMapped, "mapped")
	if _, err := mapped.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("users are not mapped: %w", err)
	}
	mapped.Close()
	return fmt.Errorf("execute forkd-spawn: %w", unix.Exec(self, []string{wire.Name, wire.ArgServe}, os.Environ()))
}
