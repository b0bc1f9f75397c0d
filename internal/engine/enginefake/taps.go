package enginefake

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Taps holds files that stay locked while they are open. Like a tap, only one process can have
// each, or a process that it was passed to.
type Taps struct {
	dir   string
	allow string // prefix
}

// NewTaps returns taps whose names begin with "tap".
func NewTaps(t *testing.T) *Taps { return &Taps{dir: t.TempDir(), allow: "tap"} }

func (t *Taps) Allows(name string) bool { return strings.HasPrefix(name, t.allow) }

// Open implements sandbox.Taps.
func (t *Taps) Open(name string) (*os.File, error) {
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

// Free reports whether a tap has no user.
func (t *Taps) Free(name string) bool {
	f, err := t.Open(name)
	if err == nil {
		f.Close()
	}
	return err == nil
}
