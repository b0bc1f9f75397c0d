package fakeengine

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// judge returns the requested policy under a ceiling that allows everything or no network. It
// checks rules as the engine does.
func judge(asked netpolicy.Spec, grant netpolicy.HostGrant, noNetwork bool) (sandbox.Network, error) {
	if _, err := netpolicy.Compile(asked); err != nil {
		return sandbox.Network{}, sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonNetRule, "%w", err)
	}
	n := sandbox.Network{Asked: asked, HostPorts: grant}
	var cuts []netpolicy.Cut
	var err error
	if n.Effective, cuts, err = grant.Granted(asked, nil); err != nil {
		return sandbox.Network{}, err
	}
	for _, c := range cuts {
		n.Cut = append(n.Cut, c.Rule+": "+c.Text)
	}
	if noNetwork && n.Policy() != sandbox.PolicyNone {
		n.Effective = netpolicy.Spec{Default: netpolicy.Deny}
		n.Cut = []string{"all: the ceiling gives nothing"}
	}
	return n, nil
}

// networkOf returns the request's policy, or the snapshot's if the request has none.
func (e *Engine) networkOf(
	asked *netpolicy.Spec, grant netpolicy.HostGrant, of sandbox.SnapshotInfo,
) (sandbox.Network, error) {
	switch {
	case asked != nil:
		return judge(*asked, grant, e.NoNetwork)
	case of.Network != nil:
		return judge(*of.Network, grant, e.NoNetwork)
	}
	return judge(netpolicy.Spec{Default: netpolicy.Deny}, grant, e.NoNetwork)
}

// Tap is the only tap the operator allows.
const Tap = "tap0"

// forkNetwork returns the network of a fork's children. The tap is never in use.
func forkNetwork(e *Engine, req sandbox.ForkRequest, of sandbox.SnapshotInfo) (sandbox.Network, error) {
	switch {
	case req.Tap == "":
		if of.Network != nil && of.Owner != req.Owner {
			p := of.Network.WithoutReferences()
			of.Network = &p
		}
		return e.networkOf(req.Network, req.HostPorts, of)
	case req.Tap != Tap, req.N != 1, req.Network != nil:
		return sandbox.Network{}, sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonNetTap, "tap %s: not so", req.Tap)
	}
	return sandbox.Network{Tap: req.Tap}, nil
}

// inherited returns a policy in the form a snapshot stores.
func inherited(s *netpolicy.Spec) *netpolicy.Spec {
	if s == nil || sandbox.NameOf(*s) == sandbox.PolicyNone {
		return nil
	}
	p := sandbox.WithoutSecrets(*s)
	return &p
}

// nets has the engine's methods about sandboxes' networks.
type nets struct{ e *Engine }

// Network implements httpapi.Networks.
func (n nets) Network(id string) (sandbox.Network, error) {
	info, err := n.e.Get(id)
	return info.Network, err
}

// SetNetwork implements httpapi.Networks.
func (n nets) SetNetwork(_ context.Context, id string, req sandbox.NetworkRequest) (sandbox.Network, error) {
	b, err := n.e.live(id)
	if err != nil {
		return sandbox.Network{}, err
	}
	network, err := judge(req.Policy, req.HostPorts, n.e.NoNetwork)
	if err != nil {
		return sandbox.Network{}, err
	}
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	b.info.Network = network
	return network, nil
}

// Flows returns one flow for each host that rules allow.
func (n nets) Flows(_ context.Context, id string) ([]sandbox.NetFlow, error) {
	b, err := n.e.live(id)
	if err != nil {
		return nil, err
	}
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	var out []sandbox.NetFlow
	for i, rule := range b.info.Network.Effective.Allow {
		from := netip.AddrPortFrom(guestnet.Guest4.Addr(), uint16(40000+i))
		out = append(out, sandbox.NetFlow{
			Protocol: "tcp", Guest: from.String(), Far: "198.51.100.7:443", Name: "host.example",
			Rule: rule, Sent: 2048, Received: 3 << 20, Began: n.e.Now,
		})
	}
	return out, nil
}

// NetworkLog writes one refusal.
func (n nets) NetworkLog(ctx context.Context, id string, follow bool, write func([]byte) error) error {
	b, err := n.e.live(id)
	if err != nil {
		return err
	}
	line := fmt.Sprintf(`{"time":"2026-01-02T03:04:05Z","sandbox":%q,"protocol":"tcp","name":"evil.example",`+
		`"far":"203.0.113.9:443","verdict":"denied","reason":"no rule allows it"}`, id)
	if err := write([]byte(line)); err != nil || !follow {
		return err
	}
	select {
	case <-b.guest.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
