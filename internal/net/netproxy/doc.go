// Package netproxy reads the host name of a guest's TCP flow from its first bytes: the server name
// of a TLS ClientHello, or the Host of an HTTP/1 request. It returns the bytes it has read, to be
// passed on unchanged. It also intercepts TLS for hosts with header rules, to add the headers to
// requests, and for hosts whose requests are signed.
//
// All bytes come from a hostile guest. So reads are limited in length and time, and ambiguous input
// is refused. The package makes no decisions: netpolicy decides whether a name may be reached.
package netproxy
