// Command forkd-idmap gives the VMs of a daemon without root their own users. The daemon runs it
// where a package has given it the file capabilities CAP_SETUID and CAP_SETGID. It writes one fixed
// map: its caller's ID and the caller's range of /etc/subuid and /etc/subgid.
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/forkd/forkd/internal/confine/idmap"
)

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "forkd-idmap:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want one argument, a PID; the daemon starts it")
	}
	pid, err := strconv.ParseUint(args[1], 10, 22) // PID_MAX_LIMIT is 2^22
	if err != nil || pid == 0 {
		return fmt.Errorf("%q is not a PID", args[1])
	}
	return idmap.Write(int(pid))
}
