package policies

import (
	"context"
	"errors"
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Flows returns the connections of a running sandbox. It returns no flows if the sandbox has no
// wire.
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

// NetworkLog calls write with a sandbox's audit lines. With follow it continues with new lines
// until the VM has ended, which is not an error, until ctx has ended, or until the daemon closes.
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

// errEnded stops following a log when the VM has ended.
var errEnded = errors.New("the VM has ended")

// port returns the connection to forkd-net, and the name of a sandbox's VM there.
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
