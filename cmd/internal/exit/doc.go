// Package exit ends forkd and forkd-bench: it handles the signals that interrupt them, errors of
// the command line, and the output of errors for people and for programs. The programs choose the
// exit code of an error themselves. Only they may use it. The trap: Main does not return, so
// deferred calls around it never run.
package exit
