// Package placement chooses the node of a new sandbox. A Board holds the facts of all nodes, as one gateway has
// them: the nodes' own figures, and the memory promised since. A Claim walks from node to node until one accepts.
//
// The node decides about admission; the board only orders the questions. Facts are always a little old, and several
// gateways place at the same time. Therefore a claim samples a few nodes instead of taking the best of all: gateways
// with the same facts would otherwise send everything to the same node.
//
// The package sends no request and imports no Kubernetes library. The trap: only a Refusal proves the absence of side
// effects. After any other failure without an answer, the claim repeats the same request at the same node, because a
// second node would make the sandbox twice.
package placement
