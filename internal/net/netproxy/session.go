package netproxy

import (
	"net"
	"net/http"
)

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
	// Signer is called for each request. If it returns a Signer, that makes the request to send, and Headers are not
	// set. May be nil.
	Signer func() Signer
	// Near is the guest's end, starting with the first byte of the hello. Far is connected to Host.
	Near, Far net.Conn
}

// Signer makes signed requests of those of guests.
type Signer interface {
	// Sign returns the request to send, or an error for Refuse.
	Sign(r *http.Request) (*http.Request, error)
	// Refuse answers a request that Sign refused.
	Refuse(w http.ResponseWriter, err error)
	// Secrets returns the texts to hide in the headers of answers.
	Secrets() []string
}
