// Package network tests sandboxes' networks from outside: a real daemon and forkd-net, guests under
// KVM, and a test internet on the other side (internal/net/netd/nettest). It owns the view of a
// guest's programs, before and after a fork. Rules and parsers have their own tests. `make test`
// runs it on hosts with KVM. The trap: all tests share one daemon, one snapshot and one sandbox.
// The sandbox keeps the policy of the last test, so each test begins by setting its own.
package network
