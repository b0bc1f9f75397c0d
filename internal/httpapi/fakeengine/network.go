package fakeengine

import (
	"context"
	"fmt"

	"github.com/forkd/forkd/internal/netpolicy"
	"github.com/forkd/forkd/internal/sandbox"
)

// judge gives what is asked for, up to Ceiling, which is all or nothing. Rules are checked as
// the engine checks them.
func (e *Engine) judge(asked netpolicy.Spec) (sandbox.Network, error) {
	if _, err := netpolicy.Compile(asked); err != nil {
		return sandbox.Network{}, sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonNetRule, "%w", err)
	}
	n := sandbox.Network{Asked: asked, Effective: asked}
	if e.NoNetwork && n.Policy() != sandbox.PolicyNone {
		n.Effective = netpolicy.Spec{Default: netpolicy.Deny}
		n.Cut = []string{"all: the ceiling gives nothing"}
	}
	return n, nil
}

// networkOf is the request's policy, else the snapshot's.
func (e *Engine) networkOf(asked *netpolicy.Spec, of sandbox.SnapshotInfo) (sandbox.Network, error) {
	switch {
	case asked != nil:
		return e.judge(*asked)
	case of.Network != nil:
		return e.judge(*of.Network)
	}
	return e.judge(netpolicy.Spec{Default: netpolicy.Deny})
}

// inherited is a policy as a snapshot keeps it.
func inherited(s *netpolicy.Spec) *netpolicy.Spec {
	if s == nil || sandbox.NameOf(*s) == sandbox.PolicyNone {
		return nil
	}
	p := sandbox.WithoutSecrets(*s)
	return &p
}

// Network implements httpapi.Networks.
func (e *Engine) Network(id string) (sandbox.Network, error) {
	info, err := e.Get(id)
	return info.Network, err
}

// SetNetwork implements httpapi.Networks.
func (e *Engine) SetNetwork(_ context.Context, id string, asked netpolicy.Spec) (sandbox.Network, error) {
	b, err := e.live(id)
	if err != nil {
		return sandbox.Network{}, err
	}
	n, err := e.judge(asked)
	if err != nil {
		return sandbox.Network{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b.info.Network = n
	return n, nil
}

// Flows are one to each host that rules allow.
func (e *Engine) Flows(_ context.Context, id string) ([]sandbox.NetFlow, error) {
	b, err := e.live(id)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []sandbox.NetFlow
	for i, rule := range b.info.Network.Effective.Allow {
		out = append(out, sandbox.NetFlow{
			Protocol: "tcp", Guest: fmt.Sprintf("192.0.0.2:%d", 40000+i), Far: "198.51.100.7:443", Name: "host.example",
			Rule: rule, Sent: 2048, Received: 3 << 20, Began: e.Now,
		})
	}
	return out, nil
}

// NetworkLog tells of one refusal.
func (e *Engine) NetworkLog(ctx context.Context, id string, follow bool, write func([]byte) error) error {
	b, err := e.live(id)
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
