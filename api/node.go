package api

// Node describes a daemon to a gateway that chooses among nodes: its place in a cluster, and the facts for the choice.
type Node struct {
	Name    string `json:"name,omitempty" doc:"Name of the node; absent: the daemon has none"`
	UID     string `json:"uid,omitempty" doc:"UID of the node; absent: the daemon has none"`
	Key     string `json:"key,omitempty" doc:"Last five digits of the ids of its new sandboxes; absent: they have no key"`
	Version string `json:"version" doc:"Version of the daemon"`
	Kernel  string `json:"kernel,omitempty" doc:"Release of the host's kernel"`
	// CPU has the features of the host's processor.
	CPU      NodeCPU `json:"cpu" doc:"Processor of the host"`
	Draining bool    `json:"draining" doc:"Whether the daemon takes no new sandboxes, because of a drain"`
	Admits   Admits  `json:"admits" doc:"Current admission of VMs, as in Capacity" enum:"all,fewer,none"`
	// Memory and Disk are entries of Capacity.
	Memory Resource `json:"memory" doc:"Memory for sandboxes, in bytes"`
	Disk   Resource `json:"disk" doc:"The store's file system, in bytes"`
	// ChildBytes is the daemon's own estimate, used for its admission.
	ChildBytes int64         `json:"child_bytes" doc:"Memory that the daemon assumes for each new sandbox, in bytes"`
	Sandboxes  NodeSandboxes `json:"sandboxes" doc:"Numbers of sandboxes"`
	Pools      []NodePool    `json:"pools" doc:"Pools of shells, at most 256" nullable:"false"`
	// Snapshots has the snapshots of all tenants. The newest are listed.
	Snapshots []NodeSnapshot `json:"snapshots" doc:"Snapshots that can be forked, newest first, at most 1024" nullable:"false"`
	Truncated bool           `json:"truncated" doc:"Whether pools or snapshots were left out"`
}

// NodeCPU is the processor of a node's host.
type NodeCPU struct {
	Vendor   string   `json:"vendor,omitempty" doc:"Its maker, such as GenuineIntel or AuthenticAMD"`
	Features []string `json:"features" doc:"Its features by Linux's names, at most 512" nullable:"false"`
}

// NodeSandboxes counts the sandboxes of a node.
type NodeSandboxes struct {
	Running int `json:"running" doc:"Running sandboxes"`
	Coming  int `json:"coming" doc:"VMs being started"`
}

// NodePool is a pool of shells on a node.
type NodePool struct {
	Tag   string `json:"tag" doc:"Snapshot of the pool"`
	Ready int    `json:"ready" doc:"Number of ready VMs for a fork of the snapshot"`
	Want  int    `json:"want" doc:"Number of shells to keep ready"`
}

// NodeSnapshot is a snapshot on a node.
type NodeSnapshot struct {
	Tag         string `json:"tag" doc:"Name of the snapshot"`
	Owner       string `json:"owner,omitempty" doc:"Owning tenant; absent: the operator"`
	ContentHash string `json:"content_hash,omitempty" doc:"Digest of its manifest"`
	Bytes       int64  `json:"bytes" doc:"Bytes on disk, all layers of its chain"`
	Running     int    `json:"running" doc:"Running sandboxes forked from it"`
}
