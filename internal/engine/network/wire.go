package network

import (
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/netpolicy"
	"github.com/forkd/forkd/internal/sandbox"
)

// VM is a VMM process as a wire needs it.
type VM interface {
	// SetNet gives the VMM its end of a wire, in place of the one that it has.
	SetNet(ctx context.Context, wire *os.File) error
	Done() <-chan struct{}
}

// Wire is one VM's line to forkd-net: a pair of sockets, one end at each; or the operator's tap
// that it has instead, of which there is one end. A nil Wire is that of a VM which needs none.
type Wire struct {
	name    string // at forkd-net; empty: it has a tap
	tap     string // name of the tap
	sandbox string
	tag     string // that the VM was forked from

	facts facts // that its guest begins with

	// giving is held while the VMM gets an end, so that of two the newer comes last. Lock
	// order: giving, then Wires.mu.
	giving sync.Mutex

	// Guarded by Wires.mu:
	spec  netpolicy.Spec
	bound bool // forkd-net serves it
	// handover: forkd-net is told that the VMM may be handed sockets. It is expected of VMMs that
	// are still to be made, and taken back before one that must not be gets its end.
	handover bool
	end      end    // of the VMM, until that has it
	turn     int    // counts ends: which of them was lent
	anew     bool   // forkd-net is to bind it anew: it was told that the VMM may be handed sockets
	vm       VM     // nil: it is still being made
	ca       string // that forkd-net wants its guest to trust; empty: none
	given    string // that its guest was given
}

// Name is its name at forkd-net, for the VM's journal; empty for a nil Wire and for a tap.
func (x *Wire) Name() string {
	if x == nil {
		return ""
	}
	return x.name
}

// end is an open end, or nothing.
type end struct{ f *os.File }

func (e end) close() {
	if e.f != nil {
		e.f.Close()
	}
}

func (x *Wire) takeEndLocked() end {
	e := x.end
	x.end = end{}
	return e
}

// pair makes the two ends of a wire.
func pair() (vmm, net *os.File, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(p[0]), "wire"), os.NewFile(uintptr(p[1]), "wire"), nil
}

// Lent is a VMM's end, lent to who restores the VM.
type Lent struct {
	File *os.File // nil: there is none at this moment; closed by Close
	CA   string   // that the guest has to trust, in PEM; empty: none
	turn int
}

// Close closes the file.
func (l Lent) Close() { end{l.File}.close() }

// Lend hands out the VMM's end of a wire whose VM is being made. The wire keeps its own
// until Attach: a VM that died on the way costs a try only. A VMM that is not confined, though that
// was expected, gets none: Attach gives it one that is bound so.
func (w *Wires) Lend(x *Wire, confined bool) (Lent, error) {
	if x == nil {
		return Lent{}, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.handover && !confined {
		x.takeEndLocked().close()
		x.turn++
		x.handover, x.anew = false, x.bound
	}
	l := Lent{turn: x.turn, CA: x.ca}
	if x.end.f == nil {
		return l, nil
	}
	fd, err := unix.FcntlInt(x.end.f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return l, os.NewSyscallError("fcntl", err)
	}
	l.File = os.NewFile(uintptr(fd), "wire")
	return l, nil
}

// Attach says that a VM was made and has what was lent. From now on the wire is the VM's,
// and goes when its process has ended.
func (w *Wires) Attach(ctx context.Context, x *Wire, vm VM, l Lent) {
	if x == nil {
		return
	}
	w.mu.Lock()
	x.vm, x.given = vm, l.CA
	if l.File != nil && l.turn == x.turn { // it has the newest
		x.takeEndLocked().close()
	}
	port, epoch, anew := w.port, w.epoch, x.anew
	x.anew = false
	w.mu.Unlock()
	if anew && port != nil { // without it all is bound when there is one
		w.forget(port, x.name)
		if err := w.bindAll(ctx, port, epoch, []*Wire{x}); err != nil {
			w.cfg.Log.Warn("a sandbox has no network: forkd-net did not take it anew", "sandbox", x.sandbox, "err", err)
		}
	}
	w.give(ctx, x)
	w.trust(ctx, x)
	w.watch(x, vm)
}

// give hands the VMM the newest end, if it does not have it.
func (w *Wires) give(ctx context.Context, x *Wire) {
	x.giving.Lock()
	defer x.giving.Unlock()
	w.mu.Lock()
	vm := x.vm
	e := end{}
	if vm != nil {
		e = x.takeEndLocked()
	}
	w.mu.Unlock()
	if e.f == nil {
		return
	}
	defer e.close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := vm.SetNet(ctx, e.f); err != nil {
		w.cfg.Log.Warn("give a VM its wire: its network is off until forkd-net starts anew", "wire", x.name, "err", err)
	}
}

// watch has the wire go when its VM's process has ended.
func (w *Wires) watch(x *Wire, vm VM) {
	w.watchers.Go(func() {
		select {
		case <-vm.Done():
			w.Release(x)
		case <-w.released:
		}
	})
}

// Release takes a wire away. A second time is harmless.
func (w *Wires) Release(x *Wire) {
	if x == nil {
		return
	}
	w.mu.Lock()
	known := w.wires[x.name] == x
	delete(w.wires, x.name)
	if w.taps[x.tap] == x {
		delete(w.taps, x.tap)
	}
	e, port, bound := x.takeEndLocked(), w.port, x.bound
	w.mu.Unlock()
	e.close()
	if known && bound && port != nil {
		w.forget(port, x.name)
	}
}

func (w *Wires) forget(port sandbox.NetPort, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := port.Release(ctx, name); err != nil {
		w.cfg.Log.Warn("release a VM at forkd-net", "wire", name, "err", err)
	}
}
