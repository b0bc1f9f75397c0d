// Package build makes templates as E2B's clients describe them: a base, steps, and a program
// that runs already. A step runs in a sandbox that is forked from the snapshot before it, and
// what became of that is a snapshot again: a layer, which is kept under a key of everything that
// went into it and found again by the next build. It owns names, tags, builds, their logs,
// layers' keys and uploaded files, in one folder; sandboxes and snapshots are the engine's, which
// it reaches through an interface. It knows no HTTP. The trap: a layer's snapshot may be deleted
// behind its back, and the daemon may end at any step, so nothing is believed that the engine
// does not say again, and what is about to be made is written down first.
package build
