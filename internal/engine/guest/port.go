package guest

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/dialwire"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// portTimeout bounds a dial of a port. The agent gives up earlier and reports it.
const portTimeout = 30 * time.Second

// DialPort connects to a server in the guest that listens on that TCP port, on its localhost or its
// network. The connection has a CloseWrite, and the caller closes it. It breaks when the VM ends,
// like DialAgent's.
func (c *Calls) DialPort(ctx context.Context, id string, port uint16) (net.Conn, error) {
	if port == 0 {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "", "port is 0, want 1 to 65535")
	}
	return redial(func() (net.Conn, error) { return c.dialPort(ctx, id, port) })
}

func (c *Calls) dialPort(ctx context.Context, id string, port uint16) (net.Conn, error) {
	c.beforeExec(ctx, sandbox.CanonicalID(id))
	ctx, done, m, err := c.enter(ctx, id, portTimeout)
	if err != nil {
		return nil, err
	}
	defer done()
	id = sandbox.CanonicalID(id)
	conn, err := client.DialVsock(ctx, m.Proc.VsockPath(), agentproto.DialPort)
	if errors.Is(err, client.ErrGuestRefused) && ctx.Err() == nil && c.answers(ctx, m) {
		return nil, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonAgentOld,
			"sandbox %s has an agent of an older forkd without port connections: rebuild its snapshot", id)
	}
	if err != nil {
		return nil, Error(ctx, m, id, err)
	}
	code, err := dialwire.Ask(ctx, conn, dialwire.Request{Port: port})
	if err == nil && code == dialwire.OK {
		return m.WhileRoomConn(conn, id), nil
	}
	conn.Close()
	if err != nil {
		return nil, Error(ctx, m, id, err)
	}
	return nil, portError(id, port, code)
}

// answers reports whether the agent answers. It may be an old agent that has only the first port.
func (c *Calls) answers(ctx context.Context, m *vmproc.VM) bool {
	conn, err := client.DialVsock(ctx, m.Proc.VsockPath(), agentproto.AgentPort)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// portError converts the agent's answer to an error.
func portError(id string, port uint16, code dialwire.Code) (err error) {
	switch code {
	case dialwire.Refused:
		err = sandbox.Errorf(sandbox.ErrPortClosed, sandbox.ReasonPortRefused,
			"no server listens on port %d in sandbox %s", port, id)
	case dialwire.Timeout:
		err = sandbox.Errorf(sandbox.ErrTimeout, sandbox.ReasonPortTimeout,
			"port %d in sandbox %s did not accept a connection in time", port, id)
	case dialwire.Busy:
		err = sandbox.Errorf(sandbox.ErrBusy, sandbox.ReasonPortsBusy,
			"sandbox %s has as many connections from outside as it takes", id)
	default:
		return sandbox.Errorf(sandbox.ErrGuestGone, sandbox.ReasonAgentSilent,
			"sandbox %s: its agent answered %s when asked for port %d", id, code, port)
	}
	err = sandbox.Detailed(err, "sandbox", id)
	return sandbox.Detailed(err, "port", strconv.Itoa(int(port)))
}
