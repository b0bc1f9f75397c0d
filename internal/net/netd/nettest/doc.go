// Package nettest provides a network for tests: an "internet" with public addresses, names, HTTP,
// TLS and echo in its own network namespace. The test's process is a host in front of it, in
// another namespace. Use it only in tests.
//
// A package that uses it calls Main from its TestMain. Main runs the tests again in new user and
// network namespaces. In them the process is root only of its namespaces, and has no other network.
package nettest
