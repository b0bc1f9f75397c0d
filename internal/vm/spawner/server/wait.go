package server

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/spawner/wire"
)

// Wait waits until the daemon has mapped the users of this process's namespace, and executes this
// program again. A process that executes as root there gets the namespace's capabilities, which a
// process without a map has lost. Wait returns only on failure.
func Wait() error {
	mapped := os.NewFile(wire.FDMapped, "mapped")
	if _, err := mapped.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("users are not mapped: %w", err)
	}
	mapped.Close()
	return fmt.Errorf("execute forkd-spawn: %w", unix.Exec(self, []string{wire.Name, wire.ArgServe}, os.Environ()))
}
