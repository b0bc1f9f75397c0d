package op

import (
	"fmt"
	"slices"

	"github.com/forkd/forkd/internal/domain/privatenets"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// joinNetwork makes the children members of the requested private network. leave ends the
// memberships of children that did not become sandboxes.
func (f *forkOp) joinNetwork() (leave func(), err error) {
	leave = func() {}
	if f.req.Join == nil || f.group != nil { // a copy of a group ends as a whole
		return leave, nil
	}
	if off := f.e.wires.Off(); off != "" {
		return leave, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNetOff, "join network %s: %s",
			sandbox.Clip(f.req.Join.Network), off)
	}
	if f.req.Tap != "" {
		return leave, badTap(f.req.Tap, "a sandbox with a tap is in no private network")
	}
	if f.members, err = f.e.networks.Join(f.req.Owner, *f.req.Join, f.ids); err != nil {
		return leave, fmt.Errorf("fork %s: %w", f.req.Tag, err)
	}
	return func() {
		for _, id := range f.ids {
			if f.e.sandboxes.Lookup(id) == nil {
				f.e.networks.Leave(id)
			}
		}
	}, nil
}

// memberOf returns a child's place in the private network, or nil.
func (f *forkOp) memberOf(id string) *sandbox.Member {
	m, ok := f.members[id]
	if !ok {
		return nil
	}
	return &m
}

// Networks restores and ends the memberships of sandboxes that exist.
type Networks struct{ e *Ops }

// NewNetworks returns Networks.
func NewNetworks(o *Ops) *Networks { return &Networks{o} }

// TenantNetworks returns the private networks of all tenants.
func (n *Networks) TenantNetworks() *privatenets.Store { return n.e.networks }

// AdoptNetworks restores the memberships of the sandboxes of an earlier daemon. It ends copies of groups that this
// daemon did not complete.
func (n *Networks) AdoptNetworks() {
	half := n.e.networks.Incomplete()
	for _, s := range n.e.sandboxes.All() {
		m := s.Info().Network.Member
		if m != nil && slices.ContainsFunc(half, func(of privatenets.Network) bool { return of.ID == m.NetworkID }) {
			n.e.sandboxes.End(s)
		}
	}
	if len(half) > 0 {
		if err := n.e.networks.Settle(nil, half); err != nil {
			n.e.cfg.Logger.Error("remove the networks of an incomplete fork of a group", "err", err)
		}
	}
	for _, s := range n.e.sandboxes.All() {
		i := s.Info()
		if m := i.Network.Member; m != nil && i.Status != sandbox.StatusFailed {
			n.e.networks.Adopt(i.Owner, i.ID, *m)
		}
	}
}
