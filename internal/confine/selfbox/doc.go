// Package selfbox is what a program of forkd's takes from itself while it runs, for good, when it
// has what it needs: new privileges, capabilities, files. It acts on all threads, so it works in
// programs without cgo only. What a VMM's process loses is package jail's, and is put on by who starts
// it; filters of system calls are package seccomp's. The trap: a uid that owns files keeps them without
// any capability, so root without them still reads what is root's, unless Files takes that.
package selfbox
