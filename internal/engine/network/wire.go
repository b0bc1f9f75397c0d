package network

import (
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
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
	owner   string // tenant of the sandbox; empty: the operator
	tree    sandbox.NetTree

	facts facts // that its guest begins with

	// asked is closed when the first request that binds it is over, whatever came of it; nil:
	// there was none, of a tap or a wire that an earlier daemon made.
	asked chan struct{}

	// giving is held while the VMM gets an end, so that of two the newer comes last. Lock
	// order: giving, then Wires.mu.
	giving sync.Mutex

	// Guarded by Wires.mu:
	spec  netpolicy.Spec
	bound bool // forkd-net serves it
	// unsure: a request to bind it has failed, and forkd-net may serve it all the same.
	unsure bool
	// handover: the VMM may be handed sockets. It is expected of VMMs that are still to be made, and
	// taken back, for good, before one that is not confined gets an end. An end that is kept is of a
	// binding that says the same.
	handover bool
	told     bool   // forkd-net may have been asked to bind it with handover, and was not made to forget it
	end      end    // of the VMM, until that has it
	turn     int    // counts ends, from 1: which of them was lent
	vm       VM     // nil: it is still being made
	ca       string // that forkd-net wants its guest to trust; empty: none
	given    string // that its guest was given
	// trusting: somebody is giving it.
	trusting bool
}

// Name is its name at forkd-net, for the VM's journal; empty for a nil Wire and for a tap.
func (x *Wire) Name() string {
	if x == nil {
		return ""
	}
	return x.name
}

// Await waits until forkd-net has been asked to bind a new wire, whatever came of that, or ctx ends.
func (x *Wire) Await(ctx context.Context) error {
	if x == nil || x.asked == nil {
		return nil
	}
	select {
	case <-x.asked:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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

// Lent is a VMM's end, lent to who restores the VM.
type Lent struct {
	// Confined: the VMM has confirmed that it cannot connect a socket. Without it the wire is bound as
	// one of a VMM that is handed none.
	Confined bool
	File     *os.File // nil: there is no other than it had; closed by Close
	CA       string   // that the guest has to trust, in PEM; empty: none
	turn     int      // of the newest that was lent; 0: none was
}

// Close closes the file.
func (l Lent) Close() { end{l.File}.close() }

// Lend hands out the VMM's end of a wire whose VM is being made, if it is another one than the VM
// had. The wire keeps its own until Attach: a VM that died on the way costs a try only. For a VMM
// that is not confined, though that was expected, it waits until the wire is bound anew.
func (w *Wires) Lend(ctx context.Context, x *Wire, had Lent) (Lent, error) {
	if x == nil {
		return Lent{Confined: had.Confined}, nil
	}
	if !had.Confined {
		handover{w, x}.takeBack(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := Lent{Confined: had.Confined, turn: had.turn, CA: x.ca}
	if x.end.f == nil || x.turn == had.turn {
		return l, nil
	}
	fd, err := unix.FcntlInt(x.end.f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return l, os.NewSyscallError("fcntl", err)
	}
	l.File, l.turn = os.NewFile(uintptr(fd), "wire"), x.turn
	return l, nil
}

// SetsHeaders reports whether forkd-net is to set headers for a wire's guest, which then has to
// trust a certificate. Which one is known when the wire is bound.
func (w *Wires) SetsHeaders(x *Wire) bool {
	if x == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(x.spec.Headers) > 0
}

// CA is the certificate, in PEM, that a wire's guest has to trust; empty: none.
func (w *Wires) CA(x *Wire) string {
	if x == nil {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return x.ca
}

// Attach says that a VM was made and has what was lent. From now on the wire is the VM's,
// and goes when its process has ended. What it was not lent it is given.
func (w *Wires) Attach(ctx context.Context, x *Wire, vm VM, l Lent) {
	if x == nil {
		return
	}
	if !l.Confined {
		handover{w, x}.takeBack(ctx)
	}
	w.mu.Lock()
	x.vm, x.given = vm, l.CA
	if l.turn == x.turn { // it has the newest
		x.takeEndLocked().close()
	}
	w.mu.Unlock()
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
	e, port, served := x.takeEndLocked(), w.port, x.bound || x.unsure
	w.mu.Unlock()
	e.close()
	if known && served && port != nil {
		w.forget(port, x.name)
	}
}

// forget has forkd-net forget a VM, and reports whether it did.
func (w *Wires) forget(port sandbox.NetPort, name string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	err := port.Release(ctx, name)
	if err != nil {
		w.cfg.Log.Warn("release a VM at forkd-net", "wire", name, "err", err)
	}
	return err == nil
}
