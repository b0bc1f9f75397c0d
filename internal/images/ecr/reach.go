package ecr

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
)

var errHere = errors.New("address refused")

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// notHere refuses connections to an endpoint that leads to this host or its link. Other private addresses are those of
// a VPC's own endpoint. Connections to proxies have another address, and pass.
func notHere(endpoint string, dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil || address != endpoint {
			return conn, err
		}
		at, ok := conn.RemoteAddr().(*net.TCPAddr)
		if ok && !elsewhere(at.AddrPort().Addr()) {
			return nil, errors.Join(fmt.Errorf("%w: the name leads to %s", errHere, at.IP), conn.Close())
		}
		return conn, nil
	}
}

// elsewhere reports whether an address can be that of another network.
func elsewhere(a netip.Addr) bool { return a.Unmap().IsGlobalUnicast() }

// unreachable returns the error of a request without an answer. It has no URL.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: begin the build again later", context.Cause(ctx))
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return errors.New("the name is unknown: check awsRegion. If it is right, the operator should check this server's DNS")
	case errors.As(err, &certificate), errors.Is(err, errHere):
		return fmt.Errorf("%w: the operator should check what stands between this server and AWS", err)
	}
	return temporary{fmt.Errorf("%w: the operator should check that this server, or its proxy, reaches the host", err)}
}
