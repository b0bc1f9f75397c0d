// Package landlock takes files, TCP and the reach of signals from a process, by the kernel's
// Landlock. It owns the kernel's structures and which version of the interface brought what; what
// is to be left is the caller's to say: package jail for a VMM, package selfbox for a program
// itself. The trap: what is restricted is a thread, and what it starts from then on.
package landlock
