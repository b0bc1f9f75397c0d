package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fakeTaps holds files that stay locked while they are open. Like a tap, only one process can have
// each, or a process that it was passed to.
type fakeTaps struct {
	dir   string
	allow string // prefix
}

func newFakeTaps(t *testing.T) *fakeTaps { return &fakeTaps{dir: t.TempDir(), allow: "tap"} }

func (t *fakeTaps) Allows(name string) bool { return strings.HasPrefix(name, t.allow) }

func (t *fakeTaps) Open(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(t.dir, name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, unix.EBUSY
	}
	return f, nil
}

// free reports whether a tap has no user.
func (t *fakeTaps) free(name string) bool {
	f, err := t.Open(name)
	if err == nil {
		f.Close()
	}
	return err == nil
}
