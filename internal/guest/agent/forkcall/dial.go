package forkcall

import (
	"context"
	"net"

	"github.com/mdlayher/vsock"

	"github.com/forkd/forkd/internal/guest/agentproto"
)

// DialHost connects to the host over vsock. The kernel gives up after a few seconds.
func DialHost(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return vsock.Dial(vsock.Host, agentproto.ForkPort, nil)
}

// DialNotice connects to the host's port for notices.
func DialNotice(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return vsock.Dial(vsock.Host, agentproto.NoticePort, nil)
}
