package netd

import (
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/net/netwire"
)

// subscribersMax is how many may follow the audit at once, which all VMs share.
const subscribersMax = 64

// Descriptors that a flow may have, while it is opened and relayed.
const (
	relayedCost  = 6 // both ends, and a pipe each way
	datagramCost = 3
	gatewayCost  = 2
)

// ownDescriptors are those left for flows: a question of the resolver has one, of 2048, and VMs' wires,
// the daemons and the audit have the rest.
func ownDescriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	most := int(min(limit.Cur, 1<<20))
	return max(most-most/4-2048, most/2)
}

// costOf is how many descriptors are counted for a flow that begins.
func costOf(f *flow) int {
	far := f.asked.Far.Addr()
	switch {
	case far == guestnet.Gateway4 || far == guestnet.Gateway6:
		return gatewayCost
	case f.asked.Protocol == netwire.TCP:
		return relayedCost
	}
	return datagramCost
}

// costsOne is for a flow that was handed over: one duplicate is all that is left of it here.
func costsOne(f *flow) {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	if !f.over {
		f.v.s.descriptors.Free(f.v.share, f.cost-1)
		f.cost = 1
	}
}
