package policies

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/network"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Config configures Policies.
type Config struct {
	Sandboxes *sandboxes.Table // stores each sandbox's policy
	Wires     *network.Wires   // applies policies to networks
	// Begin admits a request. The caller must call done.
	Begin func(context.Context) (_ context.Context, done func(), _ error)
	// Tell receives policy changes.
	Tell sandbox.Events
	// Closing ends when the daemon begins to close. Followed logs end then.
	Closing context.Context
}

// Policies serves requests about sandboxes' networks. Its methods are safe for concurrent use.
type Policies struct{ cfg Config }

// New returns Policies.
func New(c Config) *Policies { return &Policies{c} }

// Hidden replaces the value of a header the host sets.
const Hidden = "***"

// Adopt takes over the wires of the sandboxes left by an earlier daemon, under the ceiling of this
// one.
func (p *Policies) Adopt() error {
	for _, s := range p.cfg.Sandboxes.All() {
		_, vm, err := p.cfg.Sandboxes.Running(s.ID())
		if err != nil {
			continue // it has failed
		}
		was := s.Info().Network
		if was.Tap != "" {
			p.adoptTap(s.ID(), was.Tap, vm)
			continue
		}
		n, err := p.cfg.Wires.Judge(was.Asked, was.HostPorts)
		if err != nil { // only an earlier build accepted it: deny everything
			n = sandbox.Network{Asked: was.Asked, Cut: []string{err.Error()}}
		}
		n.Effective = s.Info().Limits.OfNetwork(n.Effective)
		n.Member = was.Member
		if n.Wire = was.Wire; !reflect.DeepEqual(n.Effective, was.Effective) {
			if err := s.SetNetwork(func(of *sandbox.Network) { *of = n }); err != nil {
				return err
			}
		}
		p.cfg.Wires.Adopt(n.Wire, sourceOf(s.Info(), vm), n.Effective, s.ID(), vm.Proc)
	}
	return nil
}

// sourceOf returns the network source of a sandbox's VM.
func sourceOf(i sandbox.Info, vm *vmproc.VM) network.Source {
	return network.Source{Owner: i.Owner, Tag: i.SnapshotTag, Unconfined: !vm.Confined(), Member: i.Network.MemberOf(),
		Tree: func(id string) sandbox.NetTree { return i.Limits.NetTree(id, i.Kin) }}
}

// adoptTap takes over a sandbox's tap. If the VM did not have the tap yet, its network was not open
// either.
func (p *Policies) adoptTap(id, tap string, vm *vmproc.VM) {
	ctx, cancel := context.WithTimeout(context.Background(), adoptTimeout)
	defer cancel()
	if p.cfg.Wires.AdoptTap(ctx, tap, id, vm.Proc) {
		_ = vm.Proc.OpenNet(ctx, nil) // fails if the VM has ended
	}
}

// adoptTimeout bounds requests to a VM left by an earlier daemon.
const adoptTimeout = 10 * time.Second

// Network returns a sandbox's network, without secrets.
func (p *Policies) Network(id string) (sandbox.Network, error) {
	_, info, err := p.cfg.Sandboxes.Find(id)
	return p.shown(info.Network), err
}

func (p *Policies) shown(n sandbox.Network) sandbox.Network {
	n.Asked, n.Effective = hide(n.Asked), hide(n.Effective)
	if sandbox.NameOf(n.Effective) != sandbox.PolicyNone {
		n.Warning = p.cfg.Wires.Off()
	}
	return n
}

// SetNetwork replaces a running sandbox's policy. When it returns, connections that are no longer
// allowed have been cut.
func (p *Policies) SetNetwork(ctx context.Context, id string, req sandbox.NetworkRequest) (sandbox.Network, error) {
	ctx, done, err := p.cfg.Begin(ctx)
	if err != nil {
		return sandbox.Network{}, err
	}
	defer done()
	if _, err := sandboxes.Settle(ctx, p.cfg.Sandboxes, id); err != nil {
		return sandbox.Network{}, err
	}
	s, _, err := p.cfg.Sandboxes.Running(id)
	if err != nil {
		return sandbox.Network{}, err
	}
	if tap := s.Info().Network.Tap; tap != "" {
		return sandbox.Network{}, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNetTap,
			"sandbox %s has tap %s: the operator controls its network", id, tap)
	}
	asked, err := restore(req.Policy, s.Info().Network.Asked)
	if err != nil {
		return sandbox.Network{}, err
	}
	next, err := p.cfg.Wires.Judge(asked, req.HostPorts)
	if err != nil {
		return sandbox.Network{}, err
	}
	next.Effective = s.Info().Limits.OfNetwork(next.Effective)
	if err := s.SetNetwork(func(n *sandbox.Network) { next.Wire, next.Member = n.Wire, n.Member; *n = next }); err != nil {
		return sandbox.Network{}, err
	}
	if err := p.apply(ctx, s, next); err != nil {
		return sandbox.Network{}, fmt.Errorf("network of sandbox %s: %w", id, err)
	}
	about := s.Info().About()
	about["policy"] = string(next.Policy())
	p.cfg.Tell(sandbox.EventNetwork, s.ID(), about)
	return p.shown(next), nil
}

// apply applies the policy to the sandbox's VM. A VM without a wire, because its policy allowed no
// traffic, gets one.
func (p *Policies) apply(ctx context.Context, s *sandboxes.Sandbox, n sandbox.Network) error {
	if n.Wire != "" {
		return p.cfg.Wires.Update(ctx, n.Wire, n.Effective)
	}
	leave, err := s.Turn(ctx) // of two concurrent calls, the second finds the wire of the first
	if err != nil {
		return err
	}
	defer leave()
	_, vm, err := p.cfg.Sandboxes.Running(s.ID())
	if err != nil {
		return err
	}
	info := s.Info()
	now := info.Network
	if now.Wire != "" {
		return p.cfg.Wires.Update(ctx, now.Wire, now.Effective)
	}
	wire, err := p.cfg.Wires.BindNow(ctx, sourceOf(info, vm), now.Effective, s.ID())
	if err != nil {
		return err
	}
	p.cfg.Wires.Attach(ctx, wire, vm.Proc, network.Lent{Confined: vm.Confined()})
	return s.SetNetwork(func(n *sandbox.Network) { n.Wire = wire.Name() })
}

// hide replaces the values of headers.
func hide(s netpolicy.Spec) netpolicy.Spec {
	s.Headers = slices.Clone(s.Headers)
	for i, h := range s.Headers {
		hidden := map[string]string{}
		for name := range h.Headers {
			hidden[name] = Hidden
		}
		s.Headers[i].Headers = hidden
	}
	return s
}

// restore replaces Hidden values with the known ones of the same headers to the same hosts.
func restore(s, known netpolicy.Spec) (netpolicy.Spec, error) {
	values := map[[2]string]string{}
	for _, h := range known.Headers {
		for name, v := range h.Headers {
			values[[2]string{h.Host, name}] = v
		}
	}
	s.Headers = slices.Clone(s.Headers)
	for i, h := range s.Headers {
		all := maps.Clone(h.Headers)
		for name, v := range all {
			was, is := values[[2]string{h.Host, name}]
			if v == Hidden && !is {
				return s, sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonNetSecret,
					"headers of %s: the value of %s is masked, and the current policy has no value for it", h.Host, name)
			}
			if v == Hidden {
				all[name] = was
			}
		}
		s.Headers[i].Headers = all
	}
	return s, nil
}
