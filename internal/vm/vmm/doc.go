// Package vmm has the nouns of one virtual machine that the daemon and a VMM
// process share: its states, how it ends, its errors, what it is booted, restored
// and captured with, and what comes back. All of it is plain data; the live
// machine is package live, the way between the two processes package vmctl. Both
// ends may import it, and it imports neither. The trap: the files in a blueprint
// are open and have one owner, which every type states.
package vmm
