package network

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/leaf/ctxsleep"
)

const (
	// trustTimeout is short: a guest that does not answer must not delay the others' wires.
	trustTimeout = 2 * time.Second
	// trustAgain is for retries, which delay no one else. A guest with little CPU time needs
	// seconds to write a bundle.
	trustAgain = 30 * time.Second
)

// trust makes a wire's guest trust forkd-net's current certificate, if the certificate has changed:
// forkd-net was restarted, or the policy sets headers since. A guest that is still being made gets
// it with its identity. If a guest is too slow, trust retries in the background.
func (w *Wires) trust(ctx context.Context, x *Wire) {
	w.mu.Lock()
	idle := x.vm != nil && !x.trusting
	x.trusting = x.trusting || idle
	w.mu.Unlock()
	if !idle {
		return // a running installation notices the new certificate
	}
	c := certificate{w, x}
	err := c.install(ctx, trustTimeout)
	if c.settled() {
		return
	}
	w.cfg.Log.Warn("a guest does not trust forkd-net yet: hosts with header rules fail in it",
		"sandbox", x.sandbox, "err", err)
	w.watchers.Go(c.keepInstalling)
}

// certificate is the certificate to install in one wire's guest.
type certificate struct {
	wires *Wires
	of    *Wire
}

// neededLocked reports whether the guest needs the current certificate.
func (c certificate) neededLocked() bool {
	return c.of.ca != "" && c.of.ca != c.of.given && c.wires.cfg.Trust != nil
}

// settled reports whether no installation is needed any more. If it returns true, the caller's
// installation has ended.
func (c certificate) settled() bool {
	c.wires.mu.Lock()
	defer c.wires.mu.Unlock()
	c.of.trusting = c.neededLocked()
	return !c.of.trusting
}

// install sends the certificate to a guest if it needs one.
func (c certificate) install(ctx context.Context, limit time.Duration) error {
	c.wires.mu.Lock()
	ca, needed := c.of.ca, c.neededLocked()
	c.wires.mu.Unlock()
	if !needed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := c.wires.cfg.Trust(ctx, c.of.sandbox, ca); err != nil {
		return err
	}
	c.wires.mu.Lock()
	c.of.given = ca
	c.wires.mu.Unlock()
	return nil
}

// keepInstalling retries until the guest has the certificate, its VM has ended, or the daemon
// releases it.
func (c certificate) keepInstalling() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.wires.watchers.Go(func() {
		defer cancel()
		select {
		case <-c.of.vm.Done():
		case <-c.wires.released:
		case <-ctx.Done():
		}
	})
	for wait := leastWait; ; wait = min(2*wait, mostWait) {
		ctxsleep.For(ctx, wait)
		if ctx.Err() != nil {
			return
		}
		_ = c.install(ctx, trustAgain)
		if c.settled() {
			c.wires.cfg.Log.Info("a guest trusts forkd-net", "sandbox", c.of.sandbox)
			return
		}
	}
}
