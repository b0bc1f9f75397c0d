package fakeengine

import (
	"context"
	"net"
	"strconv"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// DialPort connects to a server of Ports, over TCP for its half-close.
func (g guests) DialPort(ctx context.Context, id string, port uint16) (net.Conn, error) {
	if _, err := g.e.live(id); err != nil {
		return nil, err
	}
	serve := g.e.Ports[port]
	if serve == nil {
		err := sandbox.Errorf(sandbox.ErrPortClosed, sandbox.ReasonPortRefused,
			"no server listens on port %d in sandbox %s", port, id)
		return nil, sandbox.Detailed(sandbox.Detailed(err, "sandbox", id), "port", strconv.Itoa(int(port)))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	in, err := l.Accept()
	if err != nil {
		c.Close()
		return nil, err
	}
	go func() {
		defer in.Close()
		serve(in)
	}()
	return c, nil
}
