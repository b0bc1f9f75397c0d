// Package stage creates processes that only execute a list of system calls, for use between a fork and the exec
// of a program. A Go program in that place would first start its runtime with its threads, which took longer than
// all of the calls, although the calls are known in advance. The package owns the executable that makes the
// calls. Package jail knows their meaning. Beware: there is no stack and no signal handling, and an address is
// valid only in the process that executes the script.
package stage
