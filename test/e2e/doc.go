// Package e2e tests forkd from outside: the real program serves, and the tests
// are its clients. It owns what a user may rely on: what every bad input gets,
// that nothing is lost or left behind by it, that children are themselves, and
// the command line from end to end. It has no code of its own but tests. The
// trap: all tests share one daemon and one warm parent, since a boot takes
// seconds under emulation; so a test leaves both as it found them.
package e2e
