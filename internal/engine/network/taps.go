package network

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// BindTap opens an operator's tap for a new VM, as Bind makes a wire. of identifies the VM's owner.
func (w *Wires) BindTap(name, of string) (*Wire, error) {
	if err := w.mayTap(name); err != nil {
		return nil, err
	}
	x := &Wire{tap: name, sandbox: of}
	if err := w.claim(x); err != nil {
		return nil, err
	}
	if err := w.openTap(x); err != nil {
		w.Release(x)
		return nil, err
	}
	return x, nil
}

// AllowsTap reports whether the operator lets sandboxes have a tap.
func (w *Wires) AllowsTap(name string) bool { return w.cfg.Taps != nil && w.cfg.Taps.Allows(name) }

func (w *Wires) mayTap(name string) error {
	if w.AllowsTap(name) {
		return nil
	}
	return sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonNetTap, "tap %s: the daemon does not allow it",
		sandbox.Clip(name))
}

// claim assigns the tap to x, unless another wire has it.
func (w *Wires) claim(x *Wire) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if had := w.taps[x.tap]; had != nil && !had.endedLocked() {
		return had.hasIt()
	}
	w.taps[x.tap] = x
	return nil
}

// endedLocked reports whether its VM has ended, even if its watcher has not noticed yet.
func (x *Wire) endedLocked() bool {
	if x.vm == nil {
		return false
	}
	select {
	case <-x.vm.Done():
		return true
	default:
		return false
	}
}

// hasIt returns an error naming the holder of the tap.
func (x *Wire) hasIt() error {
	if tag, made := strings.CutPrefix(x.sandbox, parentPrefix); made {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNetTapBusy,
			"tap %s: in use by snapshot %s, which is being made", x.tap, tag)
	}
	err := sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNetTapBusy, "tap %s: sandbox %s has it", x.tap, x.sandbox)
	return sandbox.Detailed(err, "sandbox", x.sandbox)
}

// parentPrefix precedes the tag of a snapshot being made, where other wires have a sandbox id.
const parentPrefix = "tag:"

// ParentName returns the name of the VM that becomes a snapshot.
func ParentName(tag string) string { return parentPrefix + tag }

// openTap opens the tap as the end of x.
func (w *Wires) openTap(x *Wire) error {
	f, err := w.cfg.Taps.Open(x.tap)
	if errors.Is(err, unix.EBUSY) {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNetTapBusy, "tap %s: %w", x.tap, err)
	}
	if err != nil {
		return sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonNetTap, "tap %s: %w", x.tap, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	x.end = end{f}
	x.turn++
	return nil
}

// TakeOver passes a sandbox's tap from its old VM to its new one. The kernel gives a tap to one
// process at a time, so TakeOver calls end in between, which ends the old VM.
func (w *Wires) TakeOver(ctx context.Context, name, of string, vm VM, end func()) error {
	x := &Wire{tap: name, sandbox: of}
	w.mu.Lock()
	had := w.taps[name]
	ours := had == nil || had.sandbox == of
	if ours {
		w.taps[name] = x // reserves the tap when the old VM has ended
	}
	w.mu.Unlock()
	end()
	if !ours {
		return had.hasIt()
	}
	err := w.mayTap(name)
	if err == nil {
		err = w.openTap(x)
	}
	if err != nil {
		w.Release(x)
		return err
	}
	w.Attach(ctx, x, vm, Lent{})
	return nil
}

// AdoptTap takes over the tap of a running VM of an earlier daemon. It reports whether AdoptTap had
// to give the VM its tap, because that daemon ended in the middle of a rollback.
func (w *Wires) AdoptTap(ctx context.Context, name, of string, vm VM) (given bool) {
	x := &Wire{tap: name, sandbox: of, vm: vm}
	w.mu.Lock()
	w.taps[name] = x
	w.mu.Unlock()
	w.watch(x, vm)
	if !w.AllowsTap(name) {
		w.cfg.Log.Warn("a sandbox has a tap that is no longer allowed; it keeps the tap until it ends",
			"sandbox", of, "tap", name)
		return false
	}
	err := w.openTap(x)
	switch {
	case err == nil:
		w.give(ctx, x)
		return true
	case !errors.Is(err, unix.EBUSY): // busy: the VM has it
		w.cfg.Log.Warn("a sandbox's tap", "sandbox", of, "tap", name, "err", err)
	}
	return false
}
