// Package peers reads snapshots of other daemons, to make them here. A peer is a URL that a request names, but only
// hosts that the operator allows are asked, with the daemon's own credential. Everything that a peer sends is compared
// with its digest where it is received (package store/hub). An interrupted blob continues at the same peer or at another
// one that has the same digest. The trap: the manifest is the word of the peer that sent it, so peers must be trusted
// like a registry.
package peers
