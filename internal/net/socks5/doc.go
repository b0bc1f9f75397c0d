// Package socks5 is a client of SOCKS5 proxies (RFC 1928, with user names and passwords of RFC
// 1929), for TCP to addresses. Callers resolve and judge the address before they dial: names are
// never sent, and there is no UDP. The result is the plain socket to the proxy; only the handshake
// was read from it. A proxy's messages come from outside, and the package turns them only into an
// *Error.
package socks5
