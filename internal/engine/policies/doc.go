// Package policies answers what is asked about the networks of running sandboxes: what each
// may reach, a change of that, its flows and its log. It knows the list of sandboxes and their
// wires, and decides nothing itself. The trap: what goes out holds no secret; a header's value
// is replaced by Hidden, and who sends that back keeps the value that there is.
package policies
