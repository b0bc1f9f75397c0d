package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/wipeonfork"
)

// System is the part of the kernel that an identity changes.
type System interface {
	// AddEntropy mixes seed into the kernel's generator, credits it, and makes the generator draw a
	// new key immediately.
	AddEntropy(seed []byte) error
	SetClock(t time.Time) error
	SetHostname(name string) error
	// WipeOnFork clears the pages that processes have marked with MADV_WIPEONFORK, in all processes but this one, and
	// returns their number.
	WipeOnFork(ctx context.Context) (pages int, err error)
	// PrepareWipeOnFork makes WipeOnFork cheap in clones. It is the last work before a snapshot.
	PrepareWipeOnFork(ctx context.Context) error
	// BindBootID shows file in place of the kernel's boot id. It is idempotent.
	BindBootID(file string) error
}

// Linux is the guest's own kernel. The zero value is ready to use.
type Linux struct{ memory wipeonfork.Wiper }

var _ System = (*Linux)(nil)

// KernelBootID is the boot id of the kernel, or that of BootIDFile if it is mounted over it.
const KernelBootID = "/proc/sys/kernel/random/boot_id"

// SetClock implements System.
func (*Linux) SetClock(t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
}

// SetHostname implements System.
func (*Linux) SetHostname(name string) error { return unix.Sethostname([]byte(name)) }

// BindBootID implements System.
func (*Linux) BindBootID(file string) error {
	want, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if shown, err := os.ReadFile(KernelBootID); err == nil && bytes.Equal(shown, want) {
		return nil // already bound
	}
	return unix.Mount(file, KernelBootID, "", unix.MS_BIND, "")
}

// WipeOnFork implements System.
func (l *Linux) WipeOnFork(ctx context.Context) (int, error) {
	got, err := l.memory.Wipe(ctx)
	return got.Pages, err
}

// PrepareWipeOnFork implements System.
func (l *Linux) PrepareWipeOnFork(ctx context.Context) error { return l.memory.Look(ctx) }

// AddEntropy implements System.
func (*Linux) AddEntropy(seed []byte) (err error) {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open random device: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := addEntropy(f, seed); err != nil {
		return fmt.Errorf("add entropy: %w", err)
	}
	// Without this the kernel keeps using the parent's key for up to a minute.
	if err := unix.IoctlSetInt(int(f.Fd()), unix.RNDRESEEDCRNG, 0); err != nil {
		return fmt.Errorf("reseed kernel: %w", err)
	}
	return nil
}
