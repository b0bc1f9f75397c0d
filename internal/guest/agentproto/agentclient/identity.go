package agentclient

import (
	"context"
	"errors"
	"fmt"
	"net"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/msgwire"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// IdentityByPort is Identity without HTTP, on the port of its own: only an agent that
// says it can (agentproto.CanIdentityPort) has one. A port that does not answer is an error.
func (c *Client) IdentityByPort(ctx context.Context,
	req *agentv1.IdentityRequest) (*agentv1.IdentityResponse, error) {
	if c.identity == nil {
		return nil, errors.New("set identity: no way to its port is known")
	}
	ctx, cancel := bounded(ctx, shortCall)
	defer cancel()
	conn, err := c.identityAhead.dial(ctx, c.identity)
	if err != nil {
		if ctx.Err() == nil {
			err = connect.NewError(connect.CodeUnavailable, err)
		}
		return nil, fmt.Errorf("set identity: %w", said(err))
	}
	resp, err := identityOver(ctx, conn, req)
	if err != nil {
		return nil, fmt.Errorf("set identity: %w", said(err))
	}
	return resp, nil
}

// DialIdentity begins to open the connection on which IdentityByPort will ask, which may wait for the guest to
// begin; ctx ends that. Close closes it if nobody has asked.
func (c *Client) DialIdentity(ctx context.Context) {
	if c.identity != nil {
		c.identityAhead.begin(ctx, c.identity)
	}
}

// identityOver asks on a connection to the identity's port, and closes it. Its errors have
// Connect's codes, as those of the other way do.
func identityOver(ctx context.Context, conn net.Conn, req *agentv1.IdentityRequest) (*agentv1.IdentityResponse, error) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	broken := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return connect.NewError(codeOf(err), err)
	}
	if err := msgwire.Write(conn, req, msgwire.MaxIdentityBytes); err != nil {
		return nil, broken(err)
	}
	var answer agentv1.IdentityAnswer
	if err := msgwire.Read(conn, &answer, msgwire.MaxIdentityBytes); err != nil {
		return nil, broken(err)
	}
	if answer.GetResponse() == nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, guesttext.New(answer.GetRefused()))
	}
	return answer.GetResponse(), nil
}
