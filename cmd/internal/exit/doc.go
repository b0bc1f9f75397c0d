// Package exit is how forkd and forkd-bench end: the signals that interrupt them, the
// errors of a command line, how an error is told to people and to programs. Which exit
// code an error has they decide themselves. Only they may call it. The trap: Main does
// not return, so nothing may be deferred around it.
package exit
