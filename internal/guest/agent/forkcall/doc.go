// Package forkcall is the guest's side of forks that a guest makes of itself.
// Programs call over a Unix socket; each call goes on to the host over a
// connection of its own, and its answer comes back the same way. It owns the
// calls under way and what becomes of them when the guest is cloned beneath
// them: the host answers in the original, this package in the clones. The agent
// runs one Server. The trap: in a clone the connection to the host breaks before
// the identity comes, and nothing but the guest's address tells that from a
// host that failed; see generation.
package forkcall
