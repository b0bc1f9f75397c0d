// Package volumefiles opens the files of volumes for E2B's clients, which use them without a sandbox. A volume is
// a disk with a file system that a guest may have written, so the daemon never reads it: the files come from the
// agent of the sandbox that has the volume. If no sandbox has it, a small one without a network is forked for
// them. That one ends as soon as it is idle, and gives way to a sandbox that mounts the volume.
//
// Nothing is stored here: a daemon that starts again finds the sandbox by its label.
package volumefiles
