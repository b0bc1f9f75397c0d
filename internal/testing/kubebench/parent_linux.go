package kubebench

import (
	"os/exec"
	"syscall"
)

// bindToParent ends a program with the test, even if that is killed.
func bindToParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
