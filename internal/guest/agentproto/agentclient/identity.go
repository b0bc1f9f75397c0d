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

// IdentityByPort does the same as Identity without HTTP, on the agent's identity port. Only an
// agent with agentproto.CanIdentityPort has that port. If the port does not answer, it returns an
// error.
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

// DialIdentity starts to open the connection for the next IdentityByPort. The dial may wait for the
// guest to start; ctx cancels it. Close closes an unused connection.
func (c *Client) DialIdentity(ctx context.Context) {
	if c.identity != nil {
		c.identityAhead.begin(ctx, c.identity)
	}
}

// identityOver sends the request on a connection to the identity port and closes the connection.
// Its errors have Connect's codes, as errors over HTTP do.
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
