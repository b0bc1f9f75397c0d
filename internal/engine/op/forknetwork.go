package op

import (
	"context"
	"fmt"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/network"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// bind evaluates the children's policy and creates all their wires with one request, in parallel
// with the restores. A child waits for its wire just before its network is opened.
func (f *forkOp) bind(ctx context.Context) (err error) {
	if f.req.Tap != "" {
		return f.bindTap()
	}
	f.network, err = f.e.wires.Judge(asked(f.req.Network, f.src.Files.Manifest, f.req.Owner), f.req.HostPorts)
	if err != nil {
		return err
	}
	f.network.Effective = f.req.Limits.OfNetwork(f.network.Effective)
	of := sourceOf(f.src, f.req.Owner, f.req.Limits, f.req.Kin)
	if f.members != nil {
		of.Member = func(id string) *sandbox.Member { return f.memberOf(id) }
	}
	wires, err := f.e.wires.Bind(ctx, of, f.network.Effective, f.ids...)
	if err != nil {
		return err
	}
	for i := range f.children {
		f.children[i].wire = wires[i]
	}
	return nil
}

// bindTap opens the tap of the only child.
func (f *forkOp) bindTap() (err error) {
	switch {
	case f.req.N != 1:
		return badTap(f.req.Tap, fmt.Sprintf("it serves one sandbox, but the request has %d", f.req.N))
	case f.req.Network != nil:
		return badTap(f.req.Tap, policyBeside)
	case f.req.Limits.NetMiB != 0 || f.req.Limits.Tree.NetMiB != 0:
		return sandbox.Errorf(sandbox.ErrUnsupported, sandbox.ReasonLimitUnsupported,
			"tap %s: forkd cannot limit its traffic: set a limit on the tap with tc",
			sandbox.Clip(f.req.Tap))
	}
	f.network = sandbox.Network{Tap: f.req.Tap, Asked: nothing, Effective: nothing}
	f.children[0].wire, err = f.e.wires.BindTap(f.req.Tap, f.childID(1))
	return err
}

// nothing is a policy that denies everything.
var nothing = netpolicy.Spec{Default: netpolicy.Deny}

const policyBeside = "a tap takes no policy, because its network is the operator's"

func badTap(name, why string) error {
	return sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonNetTap, "tap %s: %s", sandbox.Clip(name), why)
}

// sourceOf returns the network source of a snapshot, for sandboxes with these limits.
func sourceOf(src *launch.Source, owner string, l sandbox.Limits, k sandbox.Kin) network.Source {
	m := src.Files.Manifest
	return network.Source{Owner: owner, Tag: m.Tag, Facts: m.NetworkFacts,
		Tree: func(id string) sandbox.NetTree { return l.NetTree(id, k) }}
}

// asked returns the requested policy, or else the snapshot's. References in a policy of another owner would name the
// new owner's secrets, so they are not inherited.
func asked(of *netpolicy.Spec, m *snapshot.Manifest, owner string) netpolicy.Spec {
	switch {
	case of != nil:
		return *of
	case m.Network != nil && m.Owner != owner:
		return m.Network.WithoutReferences()
	case m.Network != nil:
		return *m.Network
	}
	return nothing
}

// networkOf returns the journal entry of one child's network.
func (f *forkOp) networkOf(b *child) sandbox.Network {
	n := f.network
	n.Wire, n.Member = b.wire.Name(), f.memberOf(f.childID(b.index))
	return n
}

// unbind releases the wire of a failed child. The wire of a live child goes with its VM.
func (f *forkOp) unbind(b *child) {
	if b.err != nil {
		f.e.wires.Release(b.wire)
	}
}

// parentWire creates the wire of a VM that boots, and opens it immediately. If the request has a
// tap, it opens the tap.
func (c *createOp) parentWire(ctx context.Context) (*network.Wire, error) {
	w, policy := c.e.wires, either(c.req.BuildNetwork, c.req.Network)
	switch {
	case c.req.Tap != "":
		return w.BindTap(c.req.Tap, network.ParentName(c.req.Tag))
	case policy == nil:
		return nil, nil
	}
	n, err := w.Judge(*policy, c.req.HostPorts)
	if err != nil {
		return nil, err
	}
	return w.BindNow(ctx, network.Source{Owner: c.req.Owner}, n.Effective, network.ParentName(c.req.Tag))
}

// either returns the first policy that is not nil.
func either(policies ...*netpolicy.Spec) *netpolicy.Spec {
	for _, p := range policies {
		if p != nil {
			return p
		}
	}
	return nil
}

// inherited returns a policy as a snapshot stores it, without secrets.
func inherited(p netpolicy.Spec) *netpolicy.Spec {
	if sandbox.NameOf(p) == sandbox.PolicyNone {
		return nil
	}
	p = sandbox.WithoutSecrets(p)
	return &p
}

// knownNames returns the names resolved by the sandbox's guest, for children that inherit its
// policy and memory. If the request has another policy, it returns nil: a snapshot does not reveal
// the hosts reached while it was built.
func (w *branchOp) knownNames(ctx context.Context) []netpolicy.Exported {
	if w.req.Network != nil {
		return nil
	}
	return w.e.wires.Facts(ctx, w.b.Info().Network.Wire, snapshot.MaxNetworkFacts)
}

// judgeNetwork refuses an impossible policy before the capture.
func (w *branchOp) judgeNetwork() error {
	w.network = w.b.Info().Network.Effective
	if w.req.Network == nil {
		return nil
	}
	_, err := w.e.wires.Judge(*w.req.Network, w.req.HostPorts)
	return err
}

// judgeNetwork determines the policy of the new snapshot: the request's, otherwise the one of the
// snapshot below.
func (d *deriveOp) judgeNetwork() error {
	var err error
	if d.req.Tap, err = makingTap(d.e.wires, d.req.Tap, d.req.TapIfAllowed, d.req.BuildNetwork); err != nil {
		return err
	}
	for _, p := range []*netpolicy.Spec{d.req.Network, d.req.BuildNetwork} {
		if p == nil {
			continue
		}
		if _, err := d.e.wires.Judge(*p, d.req.HostPorts); err != nil {
			return err
		}
	}
	from, err := d.e.catalog.Get(d.req.From)
	if err != nil {
		return err
	}
	if from.Network != nil && from.Owner != d.req.Owner {
		p := from.Network.WithoutReferences()
		from.Network = &p
	}
	d.network = either(d.req.Network, from.Network, &nothing)
	return nil
}

func (c *createOp) judgeNetwork() (err error) {
	if c.req.Tap, err = makingTap(c.e.wires, c.req.Tap, c.req.TapIfAllowed, c.req.BuildNetwork); err != nil {
		return err
	}
	for _, p := range []*netpolicy.Spec{c.req.Network, c.req.BuildNetwork} {
		if p == nil {
			continue
		}
		if _, err := c.e.wires.Judge(*p, c.req.HostPorts); err != nil {
			return err
		}
	}
	return nil
}

// makingTap returns the tap used while a snapshot is made. An empty name means no tap.
func makingTap(w *network.Wires, name string, ifAllowed bool, build *netpolicy.Spec) (string, error) {
	switch {
	case name == "", ifAllowed && !w.AllowsTap(name):
		return "", nil
	case build != nil:
		return "", badTap(name, policyBeside)
	}
	return name, nil
}

// bootWired boots the parent with its end of its wire attached from the start.
func (c *createOp) bootWired(ctx context.Context, m *vmproc.VM) error {
	lent, err := c.e.wires.Lend(ctx, c.wire, network.Lent{Confined: m.Confined()})
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
