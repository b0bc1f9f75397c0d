// Package workspace is the original forkd's workspaces: a sandbox under a name that its user chose,
// which is suspended and resumed by that name, also after the daemon was started again. It owns the
// names and the file that they are kept in (docs/inside/formats/workspaces.md); forking, pausing and resuming
// are the engine's, which each call is handed as who asks may see it. The trap: a Book knows which
// sandbox a name stands for and nothing of how it is; that is asked each time, so a sandbox that ended
// by other ways makes its workspace stale without anybody's telling the Book.
package workspace
