// Package build makes templates from the descriptions of E2B's clients: a base, steps, and a
// running program. A step runs in a sandbox forked from the previous snapshot. Its result is a new
// snapshot: a layer. The layer is stored under a key of all its inputs, so that the next build
// finds it. The package owns names, tags, builds, their logs, layers' keys and uploaded files, in
// one folder. The engine owns sandboxes and snapshots; this package uses it through an interface.
// It knows no HTTP. The trap: a layer's snapshot may be deleted without notice, and the daemon may
// end at any step. So the package checks every recorded fact with the engine, and records each
// snapshot before it is made.
package build
