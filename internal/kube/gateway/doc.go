// Package gateway serves the API of many nodes at one address. It finds the node of a sandbox by the key in its id,
// chooses a node for new sandboxes, and merges lists. It keeps no table of sandboxes, so that any number of gateways
// can serve the same nodes.
//
// A gateway checks no key of a client: it passes the client's own credential on, and each node decides. So a mistake in
// the choice of a node gives no access. A request for an unknown sandbox goes to any node, which answers like a single
// daemon. The trap: a fork without an answer may have made sandboxes. Only a repetition with the same Idempotency-Key at
// the same node is safe then.
package gateway
