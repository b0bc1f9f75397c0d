package client

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail"
	"github.com/forkd/forkd/internal/confine/selfbox"
	"github.com/forkd/forkd/internal/sys/uffd"
)

const userfaultfd = "/dev/userfaultfd"

// Report lists the parts of a jail supported by a host.
type Report struct {
	Failed [jail.Parts]unix.Errno // by part; 0 if supported
	// Userfaultfd is the reason why a VMM in the jail cannot track writes of a running guest; nil
	// if it can.
	Userfaultfd error
	// Users is the reason why all VMs are one user to the host; nil if each has its own.
	Users error
}

// newReport converts the answer of the forkd-spawn process.
func newReport(errnos [jail.Parts]uint8, spawner int) (r Report) {
	for p, errno := range errnos {
		r.Failed[p] = unix.Errno(errno)
	}
	if r.Failed[jail.User] == 0 && !rulesOthers() {
		r.Failed[jail.User] = unix.EPERM
	}
	r.Userfaultfd = tryUserfaultfd()
	switch r.Users = OwnUsers(); {
	case r.Users == nil && r.Failed[jail.User] != 0:
		r.Users = r.Failed[jail.User]
	case r.Users == nil && !jail.UsersMapped(spawner):
		r.Users = errors.New("newuidmap or newgidmap failed; the daemon's log has why")
	}
	return r
}

// rulesOthers reports whether this process may kill and inspect VMs of other users, as adopting VMs
// requires. An ordinary user owns their namespace.
func rulesOthers() bool {
	if os.Geteuid() != 0 || !jail.HasUsers() {
		return true
	}
	has, err := selfbox.Capabilities()
	return err == nil && has.Has(unix.CAP_KILL) && has.Has(unix.CAP_SYS_PTRACE)
}

// tryUserfaultfd checks for a way to use userfaultfd without a privilege of the VMM.
func tryUserfaultfd() error {
	device, err := os.OpenFile(userfaultfd, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		if b, _ := os.ReadFile("/proc/sys/vm/unprivileged_userfaultfd"); strings.TrimSpace(string(b)) == "1" {
			return nil
		}
	}
	if err != nil {
		return err
	}
	defer device.Close()
	u, err := uffd.OpenAsyncWP(device)
	if err != nil {
		return err
	}
	return u.Close()
}

// Can returns the parts supported by this host.
func (r Report) Can() (s jail.Set) {
	jail.All.Each(func(p jail.Part) {
		if r.Failed[p] == 0 {
			s = s.With(p)
		}
	})
	return s
}

// reasons names parts with their errors.
func (r Report) reasons(set jail.Set) string {
	var all []string
	set.Each(func(p jail.Part) { all = append(all, fmt.Sprintf("%s (%s)", p, r.Failed[p].Error())) })
	return strings.Join(all, ", ")
}
