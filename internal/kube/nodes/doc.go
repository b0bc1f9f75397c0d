// Package nodes knows the nodes of a cluster. A Source lists them, and a Set asks each one for its facts at intervals
// and passes them to a placement board. The set finds a node by the key in the id of a sandbox.
//
// The package starts no request for a client. A dead or slow node delays its own poll only. The trap: a node is used
// only while it answers with the identity of its entry. Otherwise a wrong address would lead one node's requests to
// another node.
package nodes
