package nettest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// inside is set in the environment of tests that run in their own namespaces.
const inside = "FORKD_NETTEST_INSIDE"

// Main runs a package's tests in new namespaces, and ends the process. If namespaces are
// unavailable, it runs the tests unchanged, and New skips.
func Main(m *testing.M, run func(*testing.M) int) {
	enter(m, run, syscall.CLONE_NEWUSER|syscall.CLONE_NEWNET)
}

// MainOfDaemon is Main for tests that run a daemon with VMs. If run by root, it keeps root and
// creates only a network namespace, because a daemon has fewer rights in a user namespace.
func MainOfDaemon(m *testing.M, run func(*testing.M) int) {
	if os.Geteuid() == 0 {
		enter(m, run, syscall.CLONE_NEWNET)
	}
	Main(m, run)
}

// enter does not return.
func enter(m *testing.M, run func(*testing.M) int, namespaces uintptr) {
	if os.Getenv(inside) != "" {
		os.Exit(run(m))
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) // #nosec G702 -- this very test
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: namespaces,
		Pdeathsig:  syscall.SIGKILL,
	}
	if namespaces&syscall.CLONE_NEWUSER != 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1))
	}
	fmt.Fprintln(os.Stderr, "nettest: no namespaces, so what needs them is skipped:", err)
	os.Exit(run(m))
}
