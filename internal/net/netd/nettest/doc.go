// Package nettest is a bench for tests of the network: an "internet" with public
// addresses, names, HTTP, TLS and echo in a network namespace of its own. The
// test's process is the host before it, in another. Tests only.
//
// A package that uses it calls Main from its TestMain, which runs the tests again
// in new user and network namespaces. The trap: in there the process is root of
// nothing but its namespaces, and has no other network than the bench's.
package nettest
