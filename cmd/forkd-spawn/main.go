// Command forkd-spawn starts VMM processes in a jail. The daemon starts it, passes it the
// descriptors of a VMM, and receives a descriptor of the VMM's process. It has no other task, so
// its protocol stays small and easy to review. VMMs outlive it; it ends with the daemon.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/vm/spawner/server"
	"github.com/forkd/forkd/internal/vm/spawner/wire"
)

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "forkd-spawn:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[1] == wire.ArgWait {
		return server.Wait()
	}
	if len(args) != 2 || args[1] != wire.ArgServe {
		return errors.New("the daemon starts it, nobody does by hand")
	}
	conn, err := wire.NewConn(os.NewFile(wire.FDDaemon, "daemon"))
	if err != nil {
		return err
	}
	defer conn.Close()
	return server.Serve(conn)
}
