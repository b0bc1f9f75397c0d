// Package netdns is the resolver of guests, and the source of facts: which name has which address.
// It judges each question before it leaves the host, asks an upstream, and rebuilds the answer from
// the parts it understands. It removes addresses that policies cannot open, and records the others
// as facts. The owner of the guest's sockets calls Resolver.Answer; a proxy that has read a name
// calls Resolver.Lookup.
//
// Answers come with facts. If a guest got addresses by other means, its connections to them would
// be refused.
package netdns
