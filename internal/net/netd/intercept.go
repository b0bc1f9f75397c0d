package netd

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netproxy"
)

// Interceptor terminates TLS, to add headers to requests to some hosts, and to sign others.
type Interceptor interface {
	// CA returns the certificate, in PEM, that guests of an authority must trust.
	CA(authority string) (string, error)
	// Serve terminates the guest's TLS on near, which begins with the bytes of head. It opens its
	// own TLS on far, and sets headers on the requests. It returns when the flow is over.
	Serve(ctx context.Context, s netproxy.Session) error
}

// intercept passes a flow to the interceptor until it ends.
func (f *flow) intercept(r *relay, head netproxy.Head) {
	stop := context.AfterFunc(f.ctx, func() { f.end(true) })
	defer stop()
	err := f.v.s.cfg.Intercept.Serve(f.ctx, netproxy.Session{
		Authority: authorityOf(f.v.owner), Host: head.Name,
		Headers: func() map[string]string { return f.v.judge.Headers(head.Name) },
		Signer:  func() netproxy.Signer { return f.v.judge.Signer(head.Name) },
		Near:    &prefixed{Conn: r.near, head: head.Bytes, flow: f}, Far: r.far,
	})
	switch {
	case err == nil:
		f.end(false)
	case f.ctx.Err() != nil: // it is being ended
		f.end(true)
	default: // the host has the wrong certificate, or does not use TLS
		noteFor(f, err)
		f.finish(true, control.Refused, textOfTLS(head.Name, err))
	}
}

// textOfTLS returns an interceptor's error for the guest. Network errors are reworded, because they
// contain the host's own address.
func textOfTLS(name string, err error) string {
	var network *net.OpError
	if errors.As(err, &network) || errors.Is(err, io.EOF) || isTimeout(err) {
		return "TLS with " + name + ": the connection ended"
	}
	return err.Error()
}

// prefixed first returns the bytes already read, and enforces the VM's bandwidth limit.
type prefixed struct {
	net.Conn
	head []byte
	flow *flow
}

func (p *prefixed) Read(b []byte) (n int, err error) {
	if len(p.head) > 0 {
		n = copy(b, p.head)
		p.head = p.head[n:]
	} else {
		n, err = p.Conn.Read(b)
	}
	if slow := p.flow.v.pace(p.flow.ctx, n, true); slow != nil {
		return n, slow
	}
	return n, err
}

func (p *prefixed) Write(b []byte) (all int, err error) {
	for len(b) > 0 && err == nil {
		n := min(len(b), mostChunk)
		if err = p.flow.v.pace(p.flow.ctx, n, false); err == nil {
			n, err = p.Conn.Write(b[:n])
			all, b = all+n, b[n:]
		}
	}
	return all, err
}
