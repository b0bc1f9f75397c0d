// Package policies serves requests about the networks of running sandboxes: the policy of each,
// changes of it, its flows and its log. It knows the list of sandboxes and their wires, and makes
// no decisions itself. Answers contain no secrets: the value of a header is replaced by Hidden. A
// client that sends Hidden back keeps the existing value.
package policies
