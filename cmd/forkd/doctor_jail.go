//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/internal/confine/jail"
	"github.com/forkd/forkd/internal/machine/hostcap"
	"github.com/forkd/forkd/internal/sys/linux"
	spawner "github.com/forkd/forkd/internal/vm/spawner/client"
)

// jailProbeLimit limits a few processes with almost no work.
const jailProbeLimit = 10 * time.Second

// jailChecks returns a line for each part of the jail: whether `forkd serve --jail` can use it here
// for this user.
func jailChecks(ctx context.Context) []hostcap.Check {
	binary, err := endpoint.Program("forkd-spawn")
	if err != nil {
		return []hostcap.Check{{
			Name: "jail", Level: hostcap.Note, Detail: "forkd-spawn is not beside forkd: VMs are in no jail",
			Do: "put it there (make build), and start the daemon again",
		}}
	}
	ctx, cancel := context.WithTimeout(ctx, jailProbeLimit)
	defer cancel()
	r, err := spawner.Probe(ctx, binary)
	if err != nil {
		return []hostcap.Check{{Name: "jail", Level: hostcap.Note,
			Detail: fmt.Sprintf("could not be tried: %v", err)}}
	}
	return append(jailReport(r), usersCheck(r.Users))
}

// remedy returns the advice for a host without this part.
func remedy(p jail.Part, errno unix.Errno) string {
	switch p {
	case jail.Files:
		return "Landlock: Linux 5.13, with landlock in the kernel's list lsm="
	case jail.TCP:
		return "Linux 6.7"
	case jail.Scope:
		return "Linux 6.12"
	case jail.User, jail.Root, jail.PIDs, jail.IPC, jail.UTS, jail.CgroupNS, jail.Network:
		switch {
		case errno == unix.ENOSPC:
			return "raise the sysctl user.max_user_namespaces"
		case os.Geteuid() == 0:
			return "start the daemon with CAP_SYS_ADMIN, CAP_SETUID, CAP_SETGID, CAP_SETPCAP, CAP_KILL and CAP_SYS_PTRACE"
		}
		return "let ordinary users make user namespaces (sysctl kernel.unprivileged_userns_clone=1, or " +
			"kernel.apparmor_restrict_unprivileged_userns=0; a container's seccomp profile), or start the daemon as root"
	}
	return "start the daemon with the capabilities of root"
}

// usersCheck reports whether each VM has its own user on the host.
func usersCheck(missing error) hostcap.Check {
	c := hostcap.Check{Name: "jail: user per VM", Level: hostcap.OK, Detail: "each VM is another user to the host"}
	if missing != nil {
		c.Level, c.Detail = hostcap.Note, fmt.Sprintf("all VMs are this user to the host, parted by namespaces: %v", missing)
		if os.Geteuid() == 0 {
			return c
		}
		c.Do = "install uidmap, and give this user 65536 ids in /etc/subuid and /etc/subgid (usermod --add-subuids, " +
			"--add-subgids)"
	}
	return c
}

func jailReport(r spawner.Report) (checks []hostcap.Check) {
	jail.All.Each(func(p jail.Part) {
		c := hostcap.Check{Name: "jail: " + p.String(), Level: hostcap.OK, Detail: p.What()}
		if errno := r.Failed[p]; errno != 0 {
			c.Level, c.Detail = hostcap.Note, fmt.Sprintf("not on this host: %s", errno.Error())
			c.Do = remedy(p, errno) + "; forkd serve --jail best goes without"
			if !p.Optional() {
				c.Do += ", --jail strict does not serve"
			}
		}
		checks = append(checks, c)
	})
	c := hostcap.Check{Name: "jail: userfaultfd", Level: hostcap.OK, Detail: "branches do not stop sandboxes"}
	if r.Userfaultfd != nil {
		c.Level, c.Detail = hostcap.Note, fmt.Sprintf("not for a VM in the jail: %v", r.Userfaultfd)
		c.Do = "sandboxes stand still while they are branched; "
		if older := (*linux.Unsupported)(nil); errors.As(r.Userfaultfd, &older) {
			c.Do += "Linux " + older.Since + " does without that"
		} else {
			c.Do += "let the daemon's user open /dev/userfaultfd"
		}
	}
	return append(checks, c)
}
