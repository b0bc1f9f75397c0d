package network

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/engine/sched"
)

const (
	// trustTimeout is short: a guest that does not answer must not hold up the others' wires.
	trustTimeout = 2 * time.Second
	// trustAgain is for tries that hold up nobody. A guest that has little processor time needs
	// seconds to write a bundle.
	trustAgain = 30 * time.Second
)

// trust has a wire's guest trust the certificate that forkd-net has now, if it was given
// another: forkd-net was started again, or the policy sets headers since. A guest that is still
// being made is given it with its identity. One that is too slow is asked again and again.
func (w *Wires) trust(ctx context.Context, x *Wire) {
	w.mu.Lock()
	idle := x.vm != nil && !x.trusting
	x.trusting = x.trusting || idle
	w.mu.Unlock()
	if !idle {
		return // or whoever is at it sees that there is another
	}
	c := certificate{w, x}
	err := c.install(ctx, trustTimeout)
	if c.settled() {
		return
	}
	w.cfg.Log.Warn("a guest does not trust forkd-net yet: hosts that headers are set on fail in it",
		"sandbox", x.sandbox, "err", err)
	w.watchers.Go(c.keepInstalling)
}

// certificate is what one wire's guest has to trust.
type certificate struct {
	*Wires
	of *Wire
}

// neededLocked reports that the guest was not given the certificate that there is.
func (c certificate) neededLocked() bool {
	return c.of.ca != "" && c.of.ca != c.of.given && c.cfg.Trust != nil
}

// settled reports that there is nothing left to do. Then who asks is no longer at it.
func (c certificate) settled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of.trusting = c.neededLocked()
	return !c.of.trusting
}

// install gives a guest the certificate, if it needs one.
func (c certificate) install(ctx context.Context, limit time.Duration) error {
	c.mu.Lock()
	ca, needed := c.of.ca, c.neededLocked()
	c.mu.Unlock()
	if !needed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := c.cfg.Trust(ctx, c.of.sandbox, ca); err != nil {
		return err
	}
	c.mu.Lock()
	c.of.given = ca
	c.mu.Unlock()
	return nil
}

// keepInstalling tries until the guest has it, its VM has ended, or the daemon lets go of it.
func (c certificate) keepInstalling() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.watchers.Go(func() {
		defer cancel()
		select {
		case <-c.of.vm.Done():
		case <-c.released:
		case <-ctx.Done():
		}
	})
	for wait := leastWait; ; wait = min(2*wait, mostWait) {
		sched.Sleep(ctx, wait)
		if ctx.Err() != nil {
			return
		}
		_ = c.install(ctx, trustAgain)
		if c.settled() {
			c.cfg.Log.Info("a guest trusts forkd-net", "sandbox", c.of.sandbox)
			return
		}
	}
}
