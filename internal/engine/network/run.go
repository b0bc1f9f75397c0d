package network

import (
	"context"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
)

// Waits between attempts to reach forkd-net, doubled each time. After a connection that lasted
// steadyAfter, the waits restart at leastWait.
const (
	leastWait   = 100 * time.Millisecond
	mostWait    = 30 * time.Second
	steadyAfter = 10 * time.Second
)

// givers is the number of VMMs getting new ends concurrently.
const givers = 16

// Run keeps the connection to forkd-net until ctx ends. Connect starts forkd-net if necessary.
func (w *Wires) Run(ctx context.Context) {
	if w.cfg.Connect == nil {
		return
	}
	wait := leastWait
	for ctx.Err() == nil {
		began := time.Now()
		port, err := w.connect(ctx)
		if err == nil {
			select {
			case <-port.Done():
				w.lost(port)
				w.cfg.Log.Warn("forkd-net has ended: it is started again", "after", time.Since(began).Round(time.Millisecond))
			case <-ctx.Done():
				return
			}
		}
		if time.Since(began) > steadyAfter {
			wait = leastWait
		}
		if err != nil && ctx.Err() == nil {
			w.cfg.Log.Warn("forkd-net: sandboxes have no network until it answers", "err", err, "retry_in", wait)
			w.triedLocked(func() { close(w.tried) })
		}
		ctxsleep.For(ctx, wait)
		wait = min(2*wait, mostWait)
		if err != nil {
			w.triedLocked(func() { w.tried = make(chan struct{}) })
		}
	}
}

func (w *Wires) triedLocked(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

// connect connects to forkd-net and makes it serve exactly the existing VMs.
func (w *Wires) connect(ctx context.Context) (sandbox.NetPort, error) {
	port, err := w.cfg.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.reconcile(ctx, port); err != nil {
		port.Close()
		w.unserve()
		return nil, err
	}
	return port, nil
}

// lost records the end of the process, which serves no wires any more.
func (w *Wires) lost(port sandbox.NetPort) {
	port.Close()
	w.mu.Lock()
	w.port, w.tried = nil, make(chan struct{})
	w.mu.Unlock()
	w.unserve()
}

func (w *Wires) unserve() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.epoch++
	for _, x := range w.wires {
		x.bound = false
	}
}

// reconcile releases VMs that have ended and sends the policies of the others, which may have
// changed while disconnected. It then binds the missing VMs: their VMMs get new ends.
func (w *Wires) reconcile(ctx context.Context, port sandbox.NetPort) error {
	served, err := port.List(ctx)
	if err != nil {
		return err
	}
	for _, name := range served {
		w.mu.Lock()
		x := w.wires[name]
		if x != nil {
			x.bound = true
		}
		w.mu.Unlock()
		if x == nil {
			w.forget(port, name)
		} else if err := w.update(port, x); err != nil {
			return err
		}
	}
	for {
		missing := w.settled(port)
		if len(missing) == 0 {
			break
		}
		if err := w.rebind(ctx, port, missing); err != nil {
			return err
		}
	}
	w.forgetEnded(port, served)
	return nil
}

// settled returns the missing wires. If it returns none, requests may use the port.
func (w *Wires) settled(port sandbox.NetPort) []*Wire {
	w.mu.Lock()
	defer w.mu.Unlock()
	missing := w.unboundLocked()
	if len(missing) == 0 {
		w.port = port
		close(w.tried)
	}
	return missing
}

func (w *Wires) rebind(ctx context.Context, port sandbox.NetPort, missing []*Wire) error {
	if err := newBinder(w, port).all(ctx, missing); err != nil {
		return err
	}
	sched.Each(len(missing), givers, func(i int) {
		w.give(ctx, missing[i])
		w.trust(ctx, missing[i])
	})
	w.cfg.Log.Info("VMs are bound to forkd-net", "vms", len(missing))
	return nil
}

// forgetEnded releases VMs ended while disconnected.
func (w *Wires) forgetEnded(port sandbox.NetPort, served []string) {
	w.mu.Lock()
	served = slices.DeleteFunc(served, func(name string) bool { return w.wires[name] != nil })
	w.mu.Unlock()
	for _, name := range served {
		w.forget(port, name)
	}
}
