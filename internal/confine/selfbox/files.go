package selfbox

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/landlock"
	"github.com/forkd/forkd/internal/sys/linux"
)

// Path is a file or directory that stays accessible to a program.
type Path struct {
	Name   string
	Rights uint64 // of package landlock; for a directory they apply to everything below it
}

// Files denies the process access to all other files. Files already open stay open. It ignores missing paths. It
// returns the version of Landlock's interface. NoNewPrivileges must be called first. It returns
// errors.ErrUnsupported if the kernel has no Landlock, or a container's filter denies it.
func Files(open ...Path) (version int, err error) {
	if version, err = landlock.Version(); err != nil {
		return 0, &linux.Unsupported{Feature: "Landlock", Since: "5.13", Err: err}
	}
	all := landlock.AllFiles(version)
	return version, landlock.Ruleset{Files: all}.Restrict(func(ruleset int) error {
		for _, p := range open {
			if err := p.leave(ruleset, all); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p Path) leave(ruleset int, all uint64) error {
	fd, err := unix.Open(p.Name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", p.Name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at %s: %w", p.Name, err)
	}
	rights := p.Rights & all
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= landlock.Execute | landlock.Read | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if rights == 0 {
		return nil
	}
	if err := landlock.Allow(ruleset, fd, rights); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	return nil
}
