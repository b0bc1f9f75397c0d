package daemon

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Node is the daemon's place in a cluster.
type Node struct {
	// Name and UID identify the node. Both may be empty.
	Name, UID string
	// Key is in the ids of new sandboxes. It may be empty.
	Key sandbox.NodeKey
	// Kernel is the release of the host's kernel.
	Kernel string
	// CPU is the maker of the host's processor, and its features by Linux's names.
	CPU api.NodeCPU
	// ChildMemory is the memory of a new sandbox that admission assumes, in bytes.
	ChildMemory int64
}

// Limits of the answer. Several gateways ask each node every few seconds.
const (
	mostNodeSnapshots = 1024
	mostNodePools     = 256
	mostCPUFeatures   = 512
	// nodeAge is the time for which an answer is used again.
	nodeAge = 500 * time.Millisecond
)

// nodeRoutes describe the daemon to gateways.
type nodeRoutes struct {
	node    Node
	version string
	engine  routing.Part[nodeEngine]
	drain   *drain.Drain // may be nil

	mu   sync.Mutex // held while the facts are read, so that gateways share one reading
	last *api.Node
	at   time.Time
}

func (s *nodeRoutes) add(rt *routing.Router) {
	routing.Route(rt, huma.Operation{
		OperationID: "node", Method: http.MethodGet, Path: "/v1/node", Tags: []string{"daemon"},
		Summary: "The daemon's node in a cluster: identity, capacity, pools and snapshots in one bounded answer",
		Errors:  []int{401, 403},
	}, func(ctx context.Context, _ *routing.None) (*routing.Body[api.Node], error) {
		n, err := s.now(ctx)
		if err != nil {
			return nil, err
		}
		return routing.Answer(n), nil
	})
}

// now returns facts that are at most nodeAge old. Only the operator reaches it, so the answer is the same for each
// client.
func (s *nodeRoutes) now(ctx context.Context) (api.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || time.Since(s.at) > nodeAge {
		began := time.Now()
		n, err := s.read(ctx)
		if err != nil {
			return api.Node{}, err
		}
		s.last, s.at = &n, began
	}
	n := *s.last
	n.Draining = s.drain != nil && s.drain.On() // it must hold at once, so it is not cached
	return n, nil
}

func (s *nodeRoutes) read(ctx context.Context) (api.Node, error) {
	e := s.engine(ctx)
	c, err := e.Capacity()
	if err != nil {
		return api.Node{}, err
	}
	cpu := s.node.CPU
	cpu.Features = append([]string{}, cpu.Features[:min(len(cpu.Features), mostCPUFeatures)]...)
	n := api.Node{Name: s.node.Name, UID: s.node.UID, Key: string(s.node.Key), Version: s.version, Kernel: s.node.Kernel,
		CPU: cpu, Admits: api.Admits(c.Admits), ChildBytes: s.node.ChildMemory,
		Sandboxes: api.NodeSandboxes{Running: c.Sandboxes, Coming: c.Coming},
		Pools:     []api.NodePool{}, Snapshots: []api.NodeSnapshot{}}
	n.Memory.Resource, n.Disk.Resource = sandbox.ResourceMemory, sandbox.ResourceDisk
	for _, r := range wireCapacity(c).Resources {
		switch r.Resource {
		case sandbox.ResourceMemory:
			n.Memory = r
		case sandbox.ResourceDisk:
			n.Disk = r
		}
	}
	for _, p := range e.Pools.Pools() {
		if len(n.Pools) == mostNodePools {
			n.Truncated = true
			break
		}
		n.Pools = append(n.Pools, api.NodePool{Tag: p.Tag, Ready: p.Ready, Want: p.Wanted})
	}
	return n, s.snapshots(ctx, e, &n)
}

func (s *nodeRoutes) snapshots(ctx context.Context, e nodeEngine, n *api.Node) error {
	list, err := e.ListSnapshots(ctx)
	if err != nil {
		return err
	}
	running := map[[2]string]int{}
	for _, i := range e.List() {
		if i.Status == sandbox.StatusRunning {
			running[[2]string{i.SnapshotTag, i.SnapshotHash}]++
		}
	}
	slices.SortStableFunc(list, func(a, b sandbox.SnapshotInfo) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Tag, b.Tag))
	})
	for _, i := range list {
		if i.Status == sandbox.SnapshotFailed || len(i.Damaged) > 0 {
			continue
		}
		if len(n.Snapshots) == mostNodeSnapshots {
			n.Truncated = true
			break
		}
		n.Snapshots = append(n.Snapshots, api.NodeSnapshot{Tag: i.Tag, Owner: i.Owner, ContentHash: i.ContentHash,
			Bytes:   i.MemoryPhysicalBytes + i.DiskPhysicalBytes + i.VMStateBytes,
			Running: running[[2]string{i.Tag, i.ContentHash}]})
	}
	return nil
}

// nodeEngine has the facts about the node.
type nodeEngine struct {
	roles.Hosts
	roles.Pools
	roles.Catalog
	roles.Listing
}

func nodeEngineOf(v routing.View) routing.Part[nodeEngine] {
	return func(ctx context.Context) nodeEngine {
		e := v(ctx)
		return nodeEngine{e.Hosts, e.Pools, e.Snapshots, e.Sandboxes}
	}
}
