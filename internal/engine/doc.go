// Package engine is the facade over the rooms that make snapshots from booted parents
// and fork sandboxes from them: it admits requests, wires the rooms and runs their
// background work. It decides nothing that a room can decide, and names no
// transport: httpapi puts HTTP over it. The trap: a sandbox is listed as running only
// after its agent confirmed the new identity.
package engine
