// Package stage makes processes that do nothing but a list of system calls: what lies between a fork
// and the program that a process is to become. A Go program in that place would first start its
// runtime, with its threads, for calls that are known before; that took longer than all of them. It
// owns the executable that makes the calls, and none of their meaning, which is package jail's. The
// trap: nothing is there to help: no stack is used, no signal handled, and an address is right only
// in the process that the script becomes.
package stage
