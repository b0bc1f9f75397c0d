package netd

import (
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/net/netwire"
)

// subscribersMax limits the followers of the audit. All VMs share it.
const subscribersMax = 64

// Descriptors counted for a flow while it is opened and relayed.
const (
	relayedCost  = 6 // both ends, and a pipe in each direction
	datagramCost = 3
	gatewayCost  = 2
)

// ownDescriptors returns the number of descriptors for flows. The resolver's 2048 questions use one
// each. VMs' wires, the daemons and the audit use the rest.
func ownDescriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	most := int(min(limit.Cur, 1<<20))
	return max(most-most/4-2048, most/2)
}

// costOf returns the number of descriptors counted for a new flow.
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

// costsOne reduces the count of a handed-over flow to its one remaining duplicate.
func costsOne(f *flow) {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	if !f.over {
		f.v.s.descriptors.Free(f.v.share, f.cost-1)
		f.cost = 1
	}
}
