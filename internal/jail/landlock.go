package jail

import (
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/landlock"
)

// restrictFiles lets the process execute its program and read below its own directory of /proc;
// all other files are closed to it, whatever names or descriptors of directories it finds.
func restrictFiles(program, proc int) error {
	version, err := landlock.Version()
	if err != nil {
		return err
	}
	r := landlock.Ruleset{Files: landlock.AllFiles(version)}
	return r.Restrict(landlock.ThisThread, func(ruleset int) error {
		if err := landlock.Allow(ruleset, program, landlock.Execute); err != nil {
			return err
		}
		return landlock.Allow(ruleset, proc, landlock.Read)
	})
}

func restrictTCP() error {
	return restrictSince(landlock.TCPSince,
		landlock.Ruleset{Net: unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP})
}

func restrictScope() error {
	return restrictSince(landlock.ScopeSince,
		landlock.Ruleset{Scope: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL})
}

func restrictSince(since int, r landlock.Ruleset) error {
	version, err := landlock.Version()
	if err == nil && version < since {
		err = unix.EOPNOTSUPP
	}
	if err != nil {
		return err
	}
	return r.Restrict(landlock.ThisThread, nil)
}
