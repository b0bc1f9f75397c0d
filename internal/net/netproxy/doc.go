// Package netproxy reads from the first bytes of a guest's TCP flow which host it
// is for: the server name of a TLS ClientHello, or the Host of an HTTP/1
// request. What it reads is handed back, to be passed on as it came. It also
// intercepts TLS for hosts whose requests are to get headers of the host's.
//
// All bytes are a hostile guest's: what is read is bounded in length and time,
// and what can be understood in two ways is refused. It decides nothing: whether
// a name may be reached is netpolicy's.
package netproxy
