// Package rundir opens the daemon's run directory. It makes sure that the directory belongs to the daemon, that
// no other user can replace it, and that it contains only forkd's files. It removes only files whose names the
// caller knows, relative to open directories, and follows no links. It does not know the journal; package sandbox
// does. `forkd serve` opens the directory before it binds its socket there. Beware: a check of a path is valid
// only while all directories above it belong to root or this user, so they are checked, too.
package rundir
