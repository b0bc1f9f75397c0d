// Package upstream is a client of proxies for TCP: SOCKS5 (RFC 1928, with user names and passwords of RFC 1929), and
// HTTP proxies with the method CONNECT (RFC 9110, section 9.3.6). Callers judge the destination before they dial. The
// result is the plain socket to the proxy; only the handshake was read from it. A proxy's messages come from outside,
// and the package turns them only into an *Error.
package upstream
