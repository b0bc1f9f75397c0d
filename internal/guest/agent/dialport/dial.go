package dialport

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"

	"github.com/forkd/forkd/internal/guest/agentproto/dialwire"
)

// dial tries the guest's addresses one after another. A server that listens on an address accepts
// immediately. So dial ends the search at the first address that times out.
func (s *Server) dial(ctx context.Context, req dialwire.Request) (net.Conn, dialwire.Code) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Dial)
	defer cancel()
	port := strconv.Itoa(int(req.Port))
	var d net.Dialer
	for _, ip := range s.addresses(req.Family) {
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(ip.String(), port))
		if err == nil {
			return c, dialwire.OK
		}
		if ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, dialwire.Timeout
		}
	}
	return nil, dialwire.Refused
}

func (s *Server) addresses(f dialwire.Family) []net.IP {
	all := append([]net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, s.cfg.Addresses()...)
	var out []net.IP
	for _, ip := range all {
		if is4 := ip.To4() != nil; f == dialwire.Any || is4 == (f == dialwire.IPv4) {
			out = append(out, ip)
		}
	}
	return out
}

// networkAddresses returns the addresses of eth0 that need no zone.
func networkAddresses() []net.IP {
	eth0, err := net.InterfaceByName("eth0")
	if err != nil {
		return nil
	}
	addrs, err := eth0.Addrs()
	if err != nil {
		return nil
	}
	var out []net.IP
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			out = append(out, n.IP)
		}
	}
	return out
}
