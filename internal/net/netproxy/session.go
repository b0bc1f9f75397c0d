package netproxy

import "net"

// Incomplete is the name in headers whose value is the reason to refuse a request. No header has this name.
const Incomplete = ""

// Session is a flow with TLS to intercept.
type Session struct {
	// Authority names the CA that the guest trusts.
	Authority string
	// Host is the judged server name from the guest's hello.
	Host string
	// Headers is called for each request. Its headers replace the guest's. With Incomplete among the names, the
	// request is refused.
	Headers func() map[string]string
	// Near is the guest's end, starting with the first byte of the hello. Far is connected to Host.
	Near, Far net.Conn
}
