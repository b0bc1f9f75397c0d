// Package initns runs an init, such as systemd, in a guest. The agent is the guest's first process, so the command gives
// the init PID, mount and cgroup namespaces of its own, and the program is the first process there. It is a program in
// the guest like any other: the host or a service starts it, and the end of its control group ends the init.
//
// Three processes take part. The agent starts the outer one, which prepares the guest and waits. It starts the inner
// one in the new namespaces, which mounts what an init expects and then becomes the program. Network, hostname, IPC and
// all other mounts stay the guest's, so systemctl works from outside. The namespaces are no boundary: the guest is.
package initns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/initns/initpid"
	"github.com/forkd/forkd/internal/leaf/initprogram"
)

// innerName is the inner process's name. No file has it.
const innerName = "forkd-init-inner"

// Exit codes before the init runs, as in a shell.
const (
	exitFailed   = 1
	exitUsage    = 2
	exitNoExec   = 126
	exitNotFound = 127
)

// Install makes the commands available in a guest at boot. program is the path of the agent's binary for all users.
func Install(program string) error {
	for _, name := range []string{initprogram.Runner, Renewer} {
		if err := os.Symlink(program, name); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// Run runs a command, or the inner process, if name is one of their names. It returns false for other names.
func Run(name string, args []string) (exit int, known bool) {
	var err error
	switch filepath.Base(name) {
	case filepath.Base(initprogram.Runner):
		exit, err = outer(args)
	case filepath.Base(Renewer):
		err = renew()
	case innerName:
		err = inner(args)
	default:
		return 0, false
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "forkd-init: %v\n", err)
		exit = exitOf(err)
	}
	return exit, true
}

// usageError is a wrong command line.
type usageError struct{ error }

func exitOf(err error) int {
	switch {
	case errors.As(err, new(usageError)):
		return exitUsage
	case errors.Is(err, unix.ENOENT):
		return exitNotFound
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOEXEC):
		return exitNoExec
	}
	return exitFailed
}

// outer runs an init until its end, or with the flag waits for it to be up. It returns the exit code.
func outer(args []string) (int, error) {
	if len(args) == 2 && args[0] == initprogram.ReadyFlag {
		return 0, ready(args[1])
	}
	if len(args) == 0 || !filepath.IsAbs(args[0]) {
		return 0, usageError{errors.New("want the absolute path of an init and its arguments")}
	}
	if os.Geteuid() != 0 {
		return 0, fmt.Errorf("%s runs as user %d, and an init needs root: set the user of the image, or of the program, "+
			"to root", args[0], os.Geteuid())
	}
	if err := executable(args[0]); err != nil {
		return 0, err
	}
	if pid, running := initpid.Find(); running {
		return 0, fmt.Errorf("run %s: an init runs in this guest already, as process %d", args[0], pid)
	}
	if err := prepare("/", isSystemd(args[0])); err != nil {
		return 0, err
	}
	return run(args)
}

func executable(path string) error {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case st.IsDir() || st.Mode()&0o111 == 0:
		return fmt.Errorf("run %s: %w", path, unix.EACCES)
	}
	return nil
}

// isSystemd reports whether a path leads to systemd, as /sbin/init does where systemd is the init.
func isSystemd(path string) bool {
	to, err := filepath.EvalSymlinks(path)
	return err == nil && filepath.Base(to) == "systemd"
}
