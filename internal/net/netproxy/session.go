package netproxy

import "net"

// Session is a flow whose TLS is to be intercepted.
type Session struct {
	// Authority names the CA that the guest trusts.
	Authority string
	// Host is the server name that the guest's hello has, and that was judged.
	Host string
	// Headers are asked for at each request, and set in place of any that the guest sent.
	Headers func() map[string]string
	// Near is the guest's end, from the hello's first byte; Far is connected to Host.
	Near, Far net.Conn
}
