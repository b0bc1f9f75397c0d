// Package vmm defines the data types of one virtual machine shared by the daemon and a VMM process:
// states, exit kinds, errors, the configurations of boot, restore and capture, and their results.
// It is plain data. Package live runs the machine; package vmctl connects the two processes. Both
// import this package, and it imports neither.
//
// The files in a configuration are open and have exactly one owner. Each type documents its owner.
package vmm
