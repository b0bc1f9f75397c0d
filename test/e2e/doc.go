// Package e2e tests forkd from outside: the real program serves, and the tests are its clients. It
// owns the guarantees to users: the error for every bad input, without losses or leftovers; the
// identity of children; and the command line from end to end. It contains only tests. The trap: all
// tests share one daemon and one warm parent, because a boot takes seconds under emulation. A test
// must leave both as it found them.
package e2e
