package network

import (
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// VM is a VMM process as used by a wire.
type VM interface {
	// SetNet replaces the VMM's end of its wire.
	SetNet(ctx context.Context, wire *os.File) error
	Done() <-chan struct{}
}

// Wire is one VM's network link: a pair of sockets between its VMM and forkd-net, or a single end
// of an operator's tap. A VM without a network has a nil Wire.
type Wire struct {
	name    string // at forkd-net; empty if it has a tap
	tap     string // name of the tap
	sandbox string
	tag     string // snapshot the VM was forked from
	owner   string // tenant of the sandbox; empty for the operator
	tree    sandbox.NetTree
	member  *sandbox.Member // place in a private network; may be nil

	facts facts // known to its guest at the start

	// asked is closed when the first request to bind it has finished, whether or not it succeeded.
	// It is nil for a tap and for an adopted wire.
	asked chan struct{}

	// giving is held while the VMM gets an end, so that the newer of two ends arrives last. Lock
	// order: giving, then Wires.mu.
	giving sync.Mutex
	// updating is held while forkd-net receives a policy. It is taken under no other lock.
	updating sync.Mutex

	// Guarded by Wires.mu:
	spec  netpolicy.Spec
	bound bool // forkd-net serves it
	// unsure is set if a request to bind it has failed, but forkd-net may serve it anyway.
	unsure bool
	// handover allows forkd-net to pass sockets to the VMM. It is assumed for a VMM that does not
	// exist yet. If the VMM is not confined, the handover is taken back, permanently, before the
	// VMM gets an end. A stored end always belongs to a binding with the same handover.
	handover bool
	told     bool   // a request may have bound it with handover, and forkd-net has not forgotten it since
	end      end    // for the VMM, until it has it
	turn     int    // counts ends, from 1, to identify the one lent
	vm       VM     // nil while it is being made
	ca       string // certificate its guest must trust; empty if not needed
	given    string // certificate its guest has
	// trusting is set while a certificate is being installed.
	trusting bool
}

// Name returns its name at forkd-net, for the VM's journal. It is empty for a nil Wire and for a
// tap.
func (x *Wire) Name() string {
	if x == nil {
		return ""
	}
	return x.name
}

// Await waits until forkd-net was asked to bind a new wire, successfully or not, or until ctx ends.
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

// end is an open end, or empty.
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

// Lent is a VMM's end, lent to the code that restores the VM.
type Lent struct {
	// Confined is set if the VMM has confirmed that it cannot connect a socket. Otherwise the wire
	// is bound without handover.
	Confined bool
	File     *os.File // nil if the VM has it already; closed by Close
	CA       string   // certificate the guest must trust, in PEM; empty if not needed
	turn     int      // of the newest end lent; 0 if none was lent
}

// Close closes the file.
func (l Lent) Close() { end{l.File}.close() }

// Lend returns the VMM's end of a wire while its VM is being made, unless the VM has that end
// already. The wire keeps its own end until Attach, so another VM can be tried if this one dies. If
// the VMM was expected to be confined but is not, Lend waits until the wire is rebound.
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

// SetsHeaders reports whether forkd-net sets headers or signs requests for a wire's guest, which must then trust a
// certificate. The certificate is known once the wire is bound.
func (w *Wires) SetsHeaders(x *Wire) bool {
	if x == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return x.spec.Intercepts()
}

// CA returns the certificate, in PEM, that a wire's guest must trust. It is empty if the guest
// needs none.
func (w *Wires) CA(x *Wire) string {
	if x == nil {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return x.ca
}

// Attach records that a VM was made with the lent end. From now on the wire belongs to the VM and
// is released when its process has ended. If there is a newer end or certificate, Attach gives it
// to the VM.
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

// give passes the newest end to the VMM, unless the VMM has it.
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
		w.cfg.Log.Warn("give a VM its wire: its network is off until forkd-net restarts", "wire", x.name, "err", err)
	}
}

// watch releases the wire when its VM's process has ended.
func (w *Wires) watch(x *Wire, vm VM) {
	w.watchers.Go(func() {
		select {
		case <-vm.Done():
			w.Release(x)
		case <-w.released:
		}
	})
}

// Release removes a wire. A second call is harmless.
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

// forget makes forkd-net forget a VM, and reports whether it did.
func (w *Wires) forget(port sandbox.NetPort, name string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	err := port.Release(ctx, name)
	if err != nil {
		w.cfg.Log.Warn("release a VM at forkd-net", "wire", name, "err", err)
	}
	return err == nil
}
