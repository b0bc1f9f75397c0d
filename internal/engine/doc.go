// Package engine is the facade over its subpackages, the rooms, which make snapshots from booted
// parents and fork sandboxes from them. It admits requests, wires the rooms and runs their
// background work. It makes no decision that a room can make. It knows no transport; package
// httpapi serves it over HTTP. A sandbox is listed as running only after its agent has confirmed
// the new identity.
package engine
