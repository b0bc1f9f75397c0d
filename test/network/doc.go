// Package network tests sandboxes' networks from outside: a real daemon and forkd-net, guests under
// KVM, and on the other side an internet of the test's own (internal/net/netd/nettest). It owns what a
// guest's programs see, before and after a fork; rules and parsers have tests of their own.
// `make test` runs it where KVM is. All tests share one daemon, one snapshot and one sandbox,
// which has the policy that the last test gave it: each begins with its own.
package network
