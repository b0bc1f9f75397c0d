// Package catalog keeps the engine's snapshots: their tags, their lineage, the pins on
// their layers, and the background work that hashes, scrubs and collects them. It knows
// no sandboxes, VMs or transports; who runs from a snapshot it asks through Sandboxes.
// It never boots or forks: an operation takes a tag with Begin and writes the draft.
// The trap: what is on disk is read there each time and may be gone at the next call.
// Only what is under way for a tag is in memory, see tags.go.
package catalog
