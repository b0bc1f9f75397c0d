package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/mdlayher/vsock"

	"github.com/forkd/forkd/internal/guest/agent/forkcall"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/msgwire"
)

// identityLimit limits the time to receive a request, and the time to send its answer.
const identityLimit = 30 * time.Second

// ServeIdentity accepts identities on l, one after another, until ctx ends. See package msgwire. It
// closes l. A guest with a configured token has no such port.
func (a *Agent) ServeIdentity(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	steady := steady{l, a.cfg.Log}
	for {
		c, err := steady.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("serve identity: %w", err)
		}
		if err := a.takeIdentity(ctx, c); err != nil {
			a.cfg.Log("identity: %v", err)
		}
	}
}

// takeIdentity answers one connection and closes it.
func (a *Agent) takeIdentity(ctx context.Context, c net.Conn) error {
	defer c.Close()
	if err := fromHost(c.RemoteAddr()); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(identityLimit))
	var req agentv1.IdentityRequest
	if err := msgwire.Read(c, &req, msgwire.MaxIdentityBytes); err != nil {
		return err
	}
	var out agentv1.IdentityAnswer
	r, err := a.become(a.guest.Mark(ctx), &req)
	if out.Response = r; err != nil {
		out.Refused = text(err.Error())
	}
	_ = c.SetWriteDeadline(time.Now().Add(identityLimit))
	return msgwire.Write(c, &out, msgwire.MaxIdentityBytes)
}

// fromHost refuses programs in the guest, which can connect to its own vsock ports.
func fromHost(a net.Addr) error {
	if from, ok := a.(*vsock.Addr); ok && from.ContextID != vsock.Host {
		return errors.New("a caller that is not the host")
	}
	return nil
}

// become gives this guest the identity of a request.
func (a *Agent) become(ctx context.Context, m *agentv1.IdentityRequest) (*agentv1.IdentityResponse, error) {
	a.identMu.Lock()
	defer a.identMu.Unlock()
	a.services.Woke()
	defer a.services.Woke() // a slow identity is no fault of a service
	rep, err := a.ident.Apply(ctx, identityRequest(m))
	if err != nil {
		return nil, err
	}
	if whole(rep) { // otherwise the host ends this clone
		a.forks.Became(forkcall.Identity{
			Token: m.GetForkToken(), Index: m.GetIndex(), ID: m.GetSandboxId(), Parent: m.GetParent(),
		})
		if len(m.GetServices()) > 0 {
			rep.Steps = append(rep.Steps, a.declareAll(ctx, m.GetServices()))
		}
	}
	return identityResponse(rep), nil
}
