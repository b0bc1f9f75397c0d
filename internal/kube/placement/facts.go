package placement

import "time"

// Facts are the figures of one node. Memory is in MiB.
type Facts struct {
	// Name is the node's name, unique within the board.
	Name string
	// Asked is the gateway's time when it asked for the facts. Later answers of the node are not in them.
	Asked time.Time
	// Capacity is the memory for sandboxes, Used the promised part of it.
	Capacity, Used int64
	// DiskFree is the free part of the store's file system, from 0 to 1.
	DiskFree float64
	// Draining nodes and nodes closed by an administrator accept no new sandboxes.
	Draining bool
	// Pool is the node pool; namespaces may be restricted to one.
	Pool string
	// CPUFeatures are the features of the node's CPUs.
	CPUFeatures []string
	// Snapshots are the snapshots with data on the node, by content hash.
	Snapshots map[string]Presence
	// More is set if the node may have snapshots which are not in Snapshots.
	More bool
}

// Presence is the state of one snapshot on a node.
type Presence struct {
	// Bytes is the size of the snapshot's layers, BytesPresent the part on this node.
	Bytes, BytesPresent int64
	// Running reports a running sandbox of the snapshot: the memory of the base is already in use there.
	Running bool
	// Prepared is the number of ready shells.
	Prepared int
}

// Request describes the sandboxes of one question to a node. All of them go to the same node.
type Request struct {
	// ID is the request id. A node answers a repeated id with the first answer.
	ID string
	// Snapshot is the content hash of the parent.
	Snapshot string
	// Holders restricts the claim to nodes with data of the snapshot.
	Holders bool
	// Others restricts the claim to nodes without the snapshot, to which it is copied first.
	Others bool
	// Count is the number of sandboxes; 0 means 1.
	Count int
	// Base is the memory shared by all sandboxes of the snapshot, Unique the expected private memory of each.
	Base, Unique int64
	// CPUFeatures are the features of the snapshot's CPU. A node must have all of them.
	CPUFeatures []string
	// Pool restricts the claim to a node pool, unless it is empty.
	Pool string
	// Node restricts the claim to one node, unless it is empty: the fork of a running sandbox stays with it.
	Node string
}

func (r Request) count() int64 { return int64(max(r.Count, 1)) }
