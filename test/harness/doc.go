// Package harness runs the real daemon for black-box tests: `forkd serve` with its own directories,
// and the fixtures' images in its store. It owns a daemon's life and the view from outside:
// processes, directories, log. The tests make the requests to the daemon. Only packages below test/
// may import it. The trap: the paths below a daemon's directory must be short, because its sockets
// are there.
package harness
