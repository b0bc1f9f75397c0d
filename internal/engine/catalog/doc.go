// Package catalog manages the engine's snapshots: their tags, their lineage, the pins on their
// layers, and the background work that hashes, scrubs and collects them. It knows no VMs or
// transports, and queries the sandboxes running from a snapshot through the interface Sandboxes. It
// never boots or forks: an operation takes a tag with Begin and writes the draft. The state on disk
// is read for each call and may be gone at the next one. Only running operations on a tag are kept
// in memory, see tags.go.
package catalog
