// Package harness runs the real daemon for black-box tests: `forkd serve` with
// directories of its own, and the fixtures' images in its store. It owns a
// daemon's life and what can be seen of it from outside (processes, directories,
// log); what is asked of the daemon is the tests'. Only packages below test/ may
// import it. The trap: the paths below a daemon's directory must be short, since
// its sockets are there.
package harness
