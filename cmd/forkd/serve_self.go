//go:build linux

package main

import (
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/selfbox"
	"github.com/forkd/forkd/internal/machine/hostcap"
	spawner "github.com/forkd/forkd/internal/vm/spawner/client"
)

// Capabilities a root daemon uses while it serves with a jail (docs/operate/security.md explains
// them).
var (
	daemonUses = selfbox.Of(
		unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, // files that others own: images, guests' files
		unix.CAP_KILL,         // VMs have other users
		unix.CAP_SYS_PTRACE,   // to read /proc of VMs
		unix.CAP_SYS_NICE,     // scheduling priorities
		unix.CAP_SYS_RESOURCE, // descriptors, the oom score
		unix.CAP_NET_ADMIN,    // taps that others own
	)
	// spawnerUses are for forkd-spawn alone. They are kept but not in force, because forkd-spawn is
	// restarted if it ends.
	spawnerUses = selfbox.Of(unix.CAP_SYS_ADMIN, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETPCAP, unix.CAP_SYS_CHROOT)
)

// confineSelf drops the rights the daemon, and every process it starts later, does not use.
func confineSelf(log *slog.Logger) {
	if err := confine(); err != nil {
		log.Warn("the daemon keeps unused privileges", "err", err)
		return
	}
	log.Info("the daemon has dropped unused privileges", "left", leftToDaemon())
}

func confine() error {
	if err := selfbox.Keep(daemonUses|spawnerUses, daemonUses); err != nil {
		return err
	}
	if os.Geteuid() != 0 && spawner.OwnUsers() == nil {
		return nil // newuidmap and forkd-idmap have rights of their files, which no_new_privs would take
	}
	return selfbox.NoNewPrivileges()
}

// leftToDaemon describes the rights a daemon of this user keeps.
func leftToDaemon() string {
	switch {
	case os.Geteuid() == 0:
		has, _ := selfbox.Capabilities()
		return fmt.Sprintf("no_new_privs, root's files, %d capabilities, and %d that only forkd-spawn uses",
			(has & daemonUses).Count(), (has & spawnerUses).Count())
	case spawner.OwnUsers() == nil:
		return "no capabilities; rights of programs such as newuidmap or forkd-idmap"
	}
	return "no capabilities, no_new_privs: the rights of its user"
}

// selfCheck returns doctor's line about the daemon's rights.
func selfCheck() hostcap.Check {
	return hostcap.Check{Name: "daemon", Level: hostcap.OK, Detail: "with --jail it keeps: " + leftToDaemon()}
}
