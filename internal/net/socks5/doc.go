// Package socks5 is a client of SOCKS5 proxies (RFC 1928, with user names and passwords of
// RFC 1929), for TCP to addresses. Whoever dials through one has resolved and judged the
// address before: names are never sent, and there is no UDP. What it returns is the plain
// socket to the proxy, with nothing read from it beyond the handshake. The trap: what a proxy
// says comes from outside, and an *Error is the only thing that is made of it.
package socks5
