package policies

import (
	"context"
	"errors"
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Flows are the connections of a running sandbox, none if it needs no wire.
func (p *Policies) Flows(ctx context.Context, id string) ([]sandbox.NetFlow, error) {
	ctx, done, err := p.cfg.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	port, wire, err := p.port(ctx, id)
	if err != nil || wire == "" {
		return nil, err
	}
	return port.Flows(ctx, wire)
}

// NetworkLog calls write with a sandbox's audit lines: with follow also with those that come,
// until its VM has ended, which is no error, or ctx has, or the daemon closes.
func (p *Policies) NetworkLog(ctx context.Context, id string, follow bool, write func([]byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel(nil)
	defer context.AfterFunc(p.cfg.Closing, func() { cancel(sandbox.ErrClosing) })()
	_, vm, err := p.cfg.Sandboxes.Running(id)
	if err != nil {
		return err
	}
	watch.Go(func() {
		select {
		case <-vm.Proc.Done():
			cancel(errEnded)
		case <-ctx.Done():
		}
	})
	port, wire, err := p.port(ctx, id)
	if err != nil || wire == "" {
		return err
	}
	err = port.Log(ctx, wire, follow, write)
	if errors.Is(context.Cause(ctx), errEnded) {
		return nil
	}
	return err
}

// errEnded ends the following of a log: its VM has ended.
var errEnded = errors.New("the VM has ended")

// port is the connection to forkd-net, and the name that a sandbox's VM has there.
func (p *Policies) port(ctx context.Context, id string) (sandbox.NetPort, string, error) {
	_, _, err := p.cfg.Sandboxes.Running(id)
	if err != nil {
		return nil, "", err
	}
	_, info, err := p.cfg.Sandboxes.Find(id)
	if err != nil || info.Network.Wire == "" {
		return nil, "", err
	}
	port, err := p.cfg.Wires.Port(ctx)
	return port, info.Network.Wire, err
}
