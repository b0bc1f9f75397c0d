package kube

import (
	"testing"
	"time"

	"github.com/forkd/forkd/internal/testing/fakecluster"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// site is where the nodes of a world are: the zero site has fake engines.
type site struct{ vms *vms }

// shared are the tests of both sites.
var shared = []struct {
	name string
	test func(*testing.T, site)
}{
	{"a claim has a sandbox until it is deleted", aClaimHasASandboxUntilItIsDeleted},
	{"a claim is four writes and none more", aClaimIsFourWritesAndNoneMore},
	{"claims that cannot be served say why", claimsThatCannotBeServedSayWhy},
	{"a claim ends at its time", aClaimEndsAtItsTime},
	{"a sandbox that ended is reported", aSandboxThatEndedIsReported},
	{"a silent node's sandboxes are not reported as ended", aSilentNodesSandboxesAreNotReportedAsEnded},
	{"suspend keeps the sandbox", suspendKeepsTheSandbox},
	{"a suspended sandbox goes on at another node", aSuspendedSandboxGoesOnAtAnotherNode},
	{"a fork is three writes for any number of children", aForkIsThreeWritesForAnyNumberOfChildren},
	{"a fork of 100 over two nodes and over three", aForkOfAHundred},
	{"a fork of a sandbox, and its end", aForkOfASandboxAndItsEnd},
	{"snapshots belong to their namespace", snapshotsBelongToTheirNamespace},
	{"snapshots come from a registry", snapshotsComeFromARegistry},
	{"a snapshot is copied to more nodes", aSnapshotIsCopiedToMoreNodes},
	{"namespaces do not reach each other's sandboxes", namespacesDoNotReachEachOthersSandboxes},
	{"a warm pool is prepared shells", aWarmPoolIsPreparedShells},
	{"nodes are shown", nodesAreShown},
	{"a boot image becomes a snapshot once", aBootImageBecomesASnapshotOnce},
	{"the Python client of agent-sandbox", thePythonClientOfAgentSandbox},
	{"the router serves a namespace only", theRouterServesANamespaceOnly},
	{"kills of operator, gateway, API server and etcd", killsOfEachPart},
}

func TestOverFakeNodes(t *testing.T) {
	kvmtest.Soak(t)
	for _, tt := range shared {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, site{}) })
	}
	// These need more nodes than the machine has.
	t.Run("a snapshot finds other nodes", func(t *testing.T) { aSnapshotFindsOtherNodes(t, site{}) })
	t.Run("a snapshot is copied to nodes with labels", func(t *testing.T) { aSnapshotIsCopiedToNodesWithLabels(t, site{}) })
}

// TestOverVMs runs the same tests over `forkd serve` with real VMs, and those that need them.
func TestOverVMs(t *testing.T) {
	kvmtest.Soak(t)
	s := site{startVMs(t)}
	for _, tt := range shared {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, s) })
	}
	t.Run("VMs outlive their daemon", func(t *testing.T) { vmsOutliveTheirDaemon(t, s) })
	t.Run("a lost node's claims are reported", func(t *testing.T) { aLostNodesClaimsAreReported(t, s) })
	s.vms.nothingIsLeft(t)
}

// atMost returns n, or the number of nodes if there are fewer.
func (s site) atMost(n int) int {
	if s.vms == nil {
		return n
	}
	return min(n, len(s.vms.nodes))
}

// cluster returns a gateway over n nodes.
func (s site) cluster(t *testing.T, n int) *fakecluster.Cluster {
	if s.vms == nil {
		return fakecluster.Start(t, n, tag, nil)
	}
	return s.vms.cluster(t, n)
}

// image is a boot image of all nodes.
func (s site) image() string {
	if s.vms == nil {
		return "python-numpy"
	}
	return smallImage
}

// slow returns a time that suits the nodes: CPUs of a machine may be emulated.
func (s site) slow(d time.Duration) time.Duration {
	if s.vms == nil {
		return d
	}
	return 5 * d
}

// pick returns one of two values for fake nodes and for VMs.
func pick[V any](s site, fake, vms V) V {
	if s.vms == nil {
		return fake
	}
	return vms
}
