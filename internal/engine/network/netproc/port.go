package netproc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// port speaks the control protocol.
type port struct {
	*control.Client // Done
	socket          string
}

var _ sandbox.NetPort = (*port)(nil)

func newPort(c *control.Client, socket string) *port { return &port{c, socket} }

// Close implements sandbox.NetPort.
func (p *port) Close() error {
	p.Client.Close()
	return nil
}

// Bind implements sandbox.NetPort.
func (p *port) Bind(ctx context.Context, vms []sandbox.NetBinding) (cas []string, err error) {
	bindings := make([]control.Binding, len(vms))
	var facts factsOf
	for i, b := range vms {
		bindings[i] = control.Binding{VM: b.VM, Sandbox: b.Sandbox, Tenant: b.Tenant, Tag: b.Tag, Spec: b.Spec,
			Handover: b.Handover,
			Tree:     control.Tree{Name: b.Tree.Root, BytesPerSecond: b.Tree.BytesPerSecond}, Wire: b.Wire}
		if m := b.Member; m != nil {
			bindings[i].Member = &control.Member{Network: m.NetworkID, Alias: m.Alias, Addr: m.Addr}
		}
		if bindings[i].Facts, err = facts.encode(b.Facts); err != nil {
			return nil, err
		}
	}
	results, err := p.Client.Bind(ctx, bindings)
	for _, r := range results {
		if bad := r.Error(); bad != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", r.VM, bad))
		}
	}
	if err == nil {
		for _, r := range results {
			cas = append(cas, r.CA)
		}
		return cas, nil
	}
	for _, r := range results { // all or none
		if r.Error() == nil {
			err = errors.Join(err, p.Release(ctx, r.VM))
		}
	}
	return nil, err
}

// factsOf encodes a list shared by consecutive bindings only once.
type factsOf struct {
	last []netpolicy.Exported
	text json.RawMessage
}

func (f *factsOf) encode(facts []netpolicy.Exported) (json.RawMessage, error) {
	if len(facts) == 0 {
		return nil, nil
	}
	if len(f.last) == len(facts) && &f.last[0] == &facts[0] {
		return f.text, nil
	}
	text, err := json.Marshal(facts)
	f.last, f.text = facts, text
	return text, err
}

// Facts implements sandbox.NetPort.
func (p *port) Facts(ctx context.Context, vm string) (facts []netpolicy.Exported, err error) {
	text, err := p.Client.Facts(ctx, vm)
	if err != nil || len(text) == 0 {
		return nil, err
	}
	if err := json.Unmarshal(text, &facts); err != nil {
		return nil, fmt.Errorf("facts of %s: %w", vm, err)
	}
	return facts, nil
}

// Release implements sandbox.NetPort.
func (p *port) Release(ctx context.Context, vm string) error {
	if err := p.Client.Release(ctx, vm); !errors.Is(err, control.ErrNotFound) {
		return err
	}
	return nil
}

// Update implements sandbox.NetPort.
func (p *port) Update(ctx context.Context, vm string, spec netpolicy.Spec) (ca string, err error) {
	r, err := p.Client.Update(ctx, vm, spec)
	if err != nil {
		return "", err
	}
	return r.CA, r.Error()
}

// List implements sandbox.NetPort. It omits VMs with a broken wire: they get a new one.
func (p *port) List(ctx context.Context) ([]string, error) {
	listed, err := p.Client.List(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, l := range listed {
		if l.Connected {
			names = append(names, l.VM)
		} else if err := p.Release(ctx, l.VM); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// Traffic implements sandbox.NetPort.
func (p *port) Traffic(ctx context.Context) (map[string]sandbox.NetUse, error) {
	vms, err := p.Client.Traffic(ctx)
	out := make(map[string]sandbox.NetUse, len(vms))
	for _, t := range vms {
		out[t.VM] = sandbox.NetUse{In: t.In, Out: t.Out, Limit: t.Limit}
	}
	return out, err
}

// Flows implements sandbox.NetPort.
func (p *port) Flows(ctx context.Context, vm string) ([]sandbox.NetFlow, error) {
	flows, err := p.Client.Flows(ctx, vm)
	if err != nil {
		return nil, err
	}
	out := make([]sandbox.NetFlow, 0, len(flows))
	for _, f := range flows {
		out = append(out, sandbox.NetFlow{
			Protocol: f.Protocol, Guest: f.Guest.String(), Far: f.Far.String(), Name: f.Name, Rule: f.Rule,
			Sent: f.BytesOut, Received: f.BytesIn, Began: f.Since,
		})
	}
	return out, nil
}

// Log implements sandbox.NetPort. forkd-net stores only the last refusals. New lines arrive on a
// separate connection.
func (p *port) Log(ctx context.Context, vm string, follow bool, write func([]byte) error) error {
	past, err := p.Refusals(ctx, vm)
	if err != nil {
		return err
	}
	slices.Reverse(past) // oldest first
	for _, l := range past {
		if err := writeLine(l, write); err != nil {
			return err
		}
	}
	if !follow {
		return nil
	}
	own, err := control.Dial(ctx, p.socket)
	if err != nil {
		return err
	}
	defer own.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = own.Follow(ctx, vm, func(l control.Line) {
		if err := writeLine(l, write); err != nil {
			cancel(err)
		}
	})
	if errors.Is(err, control.ErrLimit) {
		return sandbox.Errorf(sandbox.ErrBusy, "", "follow the network log: %w", err)
	}
	return err
}

func writeLine(l control.Line, write func([]byte) error) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return write(b)
}
