// Package selfbox lets a forkd program permanently drop its own rights once it has what it needs: new privileges,
// capabilities, files. It applies to all threads, so it only works in programs without cgo. Package jail confines
// a VMM's process from its parent; package seccomp has system call filters. Beware: a uid keeps access to its
// files without any capability, so root without capabilities can still read root's files, unless Files denies
// that.
package selfbox
