// Package rundir opens the daemon's run directory: it makes sure that the
// directory is the daemon's own, that nobody else can put another one in its
// place, and that it holds nothing but what forkd put there. It removes only files
// whose names the caller knows, relative to open folders, and follows no link. It
// knows no journal; package sandbox does, and `forkd serve` opens the directory before
// it binds its socket there. The trap: a check of a path holds only as long as all
// folders above it are root's or this user's, which is why those are looked at too.
package rundir
