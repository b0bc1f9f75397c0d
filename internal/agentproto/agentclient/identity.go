package agentclient

import (
	"context"
	"errors"
	"net"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/agentproto/agentv1"
	"github.com/forkd/forkd/internal/agentproto/identwire"
)

// identityOver asks on a connection to the identity's port, and closes it. Its errors have
// Connect's codes, as those of the other way do.
func identityOver(ctx context.Context, conn net.Conn, req *agentv1.IdentityRequest) (*agentv1.IdentityResponse, error) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	broken := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return connect.NewError(connect.CodeUnavailable, err)
	}
	if err := identwire.Write(conn, req); err != nil {
		return nil, broken(err)
	}
	var answer agentv1.IdentityAnswer
	if err := identwire.Read(conn, &answer); err != nil {
		return nil, broken(err)
	}
	if answer.GetResponse() == nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New(answer.GetRefused()))
	}
	return answer.GetResponse(), nil
}
