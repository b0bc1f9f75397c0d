// Package netdns is the resolver of guests, and the source of what is attested: that a name
// has an address. It judges each question before anything leaves the host, asks an upstream,
// rebuilds the answer of what it understands, takes out addresses that no policy opens, and
// notes the rest as facts. Whoever has the guest's sockets calls Resolver.Answer; a proxy
// that read a name calls Resolver.Lookup. The trap: an answer comes with facts. To resolve
// for a guest by other means is to have connections refused that the guest was led to make.
package netdns
