package op

import (
	"context"

	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/network"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/netpolicy"
	"github.com/forkd/forkd/internal/sandbox"
	"github.com/forkd/forkd/internal/snapshot"
)

// bind judges what the children may reach, and makes their wires with one request.
func (f *forkOp) bind(ctx context.Context) (err error) {
	f.network, err = f.e.wires.Judge(asked(f.req.Network, f.src.Files.Manifest))
	if err != nil {
		return err
	}
	ids := make([]string, len(f.children))
	for i := range ids {
		ids[i] = f.childID(i + 1)
	}
	wires, err := f.e.wires.Bind(ctx, sourceOf(f.src), f.network.Effective, ids...)
	if err != nil {
		return err
	}
	for i := range f.children {
		f.children[i].wire = wires[i]
	}
	return nil
}

// sourceOf is a snapshot as wires need it.
func sourceOf(src *launch.Source) network.Source {
	m := src.Files.Manifest
	return network.Source{Tag: m.Tag, Facts: m.NetworkFacts}
}

// asked is the policy that a request asks for, or else the snapshot's.
func asked(of *netpolicy.Spec, m *snapshot.Manifest) netpolicy.Spec {
	switch {
	case of != nil:
		return *of
	case m.Network != nil:
		return *m.Network
	}
	return netpolicy.Spec{Default: netpolicy.Deny}
}

// networkOf is what the journal says of one child's network.
func (f *forkOp) networkOf(b *child) sandbox.Network {
	n := f.network
	n.Wire = b.wire.Name()
	return n
}

// unbind releases the wire of a child that was not made. That of one which was goes with its VM.
func (f *forkOp) unbind(b *child) {
	if b.err != nil {
		f.e.wires.Release(b.wire)
	}
}

// parentWire makes the wire of a VM that boots, and is opened at once.
func parentWire(ctx context.Context, w *network.Wires, tag string, policy *netpolicy.Spec) (*network.Wire, error) {
	if policy == nil {
		return nil, nil
	}
	n, err := w.Judge(*policy)
	if err != nil {
		return nil, err
	}
	wires, err := w.Bind(ctx, network.Source{}, n.Effective, "tag:"+tag)
	if err != nil {
		return nil, err
	}
	return wires[0], nil
}

// either is the first policy that is given.
func either(policies ...*netpolicy.Spec) *netpolicy.Spec {
	for _, p := range policies {
		if p != nil {
			return p
		}
	}
	return nil
}

// inherited is a policy as a snapshot keeps it: without secrets.
func inherited(p netpolicy.Spec) *netpolicy.Spec {
	if sandbox.NameOf(p) == sandbox.PolicyNone {
		return nil
	}
	p = sandbox.WithoutSecrets(p)
	return &p
}

// knownNames are what the sandbox's guest has resolved, for those who get its policy with its
// memory. Under another policy there are none: a snapshot tells nothing of what was reached
// while it was built.
func (w *branchOp) knownNames(ctx context.Context) []netpolicy.Exported {
	if w.req.Network != nil {
		return nil
	}
	return w.e.wires.Facts(ctx, w.b.Info().Network.Wire, snapshot.MaxNetworkFacts)
}

// judgeNetwork refuses a policy that nobody could have, before anything is captured.
func (w *branchOp) judgeNetwork() error {
	w.network = w.b.Info().Network.Effective
	if w.req.Network == nil {
		return nil
	}
	_, err := w.e.wires.Judge(*w.req.Network)
	return err
}

// judgeNetwork finds the policy of the new snapshot: the request's, else that of the one below.
func (d *deriveOp) judgeNetwork() error {
	for _, p := range []*netpolicy.Spec{d.req.Network, d.req.BuildNetwork} {
		if p == nil {
			continue
		}
		if _, err := d.e.wires.Judge(*p); err != nil {
			return err
		}
	}
	from, err := d.e.catalog.Get(d.req.From)
	if err != nil {
		return err
	}
	d.network = either(d.req.Network, from.Network, &netpolicy.Spec{Default: netpolicy.Deny})
	return nil
}

func (c *createOp) judgeNetwork() error {
	for _, p := range []*netpolicy.Spec{c.req.Network, c.req.BuildNetwork} {
		if p == nil {
			continue
		}
		if _, err := c.e.wires.Judge(*p); err != nil {
			return err
		}
	}
	return nil
}

// bootWired boots the parent, which has its end of its wire from the first.
func (c *createOp) bootWired(ctx context.Context, m *vmproc.VM) error {
	lent, err := c.e.wires.Lend(c.wire)
	if err != nil {
		return err
	}
	defer lent.Close()
	if err := c.src.boot(ctx, c.e, m, lent.File); err != nil {
		return err
	}
	c.e.wires.Attach(ctx, c.wire, m.Proc, lent)
	return nil
}
