package api

import "time"

// CreateSandboxesRequest is the body of POST /v1/sandboxes, which forks N children.
type CreateSandboxesRequest struct {
	// Original.
	SnapshotTag    string `json:"snapshot_tag" doc:"Snapshot to fork" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _"`
	N              *int   `json:"n,omitempty" doc:"Number of children" minimum:"1" maximum:"1000" default:"1"`
	PerChildNetns  bool   `json:"per_child_netns,omitempty" doc:"Accepted and not needed: every sandbox is alone on its network"`
	MemoryLimitMiB *int   `json:"memory_limit_mib,omitempty" doc:"Limit of each child's host memory; beyond it the child is ended. At least 32; absent or 0: no limit" minimum:"0"`
	LiveFork       bool   `json:"live_fork,omitempty" doc:"Accepted and not needed"`
	Prewarm        bool   `json:"prewarm,omitempty" doc:"Accepted and not needed"`
	Hugepages      bool   `json:"hugepages,omitempty" doc:"Accepted and not needed"`

	// Ours.
	Env       map[string]string `json:"env,omitempty" doc:"Added to the environment of every process started in the children"`
	Labels    map[string]string `json:"labels,omitempty" doc:"Labels of each child: at most 64, keys of at most 128 bytes of printable ASCII, values of at most 512 bytes, together at most 16 KiB" maxProperties:"64"`
	Secrets   []SecretRef       `json:"secrets,omitempty" doc:"The owner's secrets in the environment of every process started in the children. They and snapshots of them are tainted" maxItems:"64"`
	Services  []NamedService    `json:"services,omitempty" doc:"Services to start in each child, in addition to those of the snapshot" maxItems:"16"`
	Volumes   []VolumeMount     `json:"volumes,omitempty" doc:"Volumes to mount in each child" maxItems:"4"`
	GuestFork bool              `json:"guest_fork,omitempty" doc:"Allow programs in the children to fork them, within the daemon's limits"`
	Identity  bool              `json:"identity,omitempty" doc:"Allow programs in the children to get identity tokens: signed OpenID Connect tokens about their own sandbox. Needs a daemon with an issuer"`
	Net       Net               `json:"net,omitempty" doc:"Network policy of the children by name, none or public; replaces network" enum:"none,public"`
	Network   *NetworkPolicy    `json:"network,omitempty" doc:"Network policy of the children; absent: the snapshot's, otherwise none. The operator's ceiling limits it"`
	NetJoin   *NetJoin          `json:"net_join,omitempty" doc:"Private network of the children; absent: none. An alias needs n 1"`
	// PrivatePorts is nil to use the snapshot's setting.
	SandboxLimits
	SandboxLife
	PrivatePorts *bool `json:"private_ports,omitempty" doc:"Require a token on requests from outside to the children's ports: each child's traffic_token in the answer. Absent: true for tenants; for the operator the snapshot's setting, otherwise false"`
}

// SandboxLimits limit the use of the host by each child, in addition to memory_limit_mib. 0 or
// absent means no limit. A limit the host cannot enforce is an error.
type SandboxLimits struct {
	CPUs               float64 `json:"cpus,omitempty" doc:"CPU limit, such as 0.5 for half a CPU; beyond it the sandbox is throttled" minimum:"0"`
	CPUWeight          int     `json:"cpu_weight,omitempty" doc:"CPU share under contention, among the tenant's sandboxes; 0: 100" minimum:"0" maximum:"10000"`
	DiskReadLimitMiB   int     `json:"disk_read_limit_mib,omitempty" doc:"Limit of reads from the daemon's disk in MiB per second; beyond it reads wait" minimum:"0"`
	DiskWriteLimitMiB  int     `json:"disk_write_limit_mib,omitempty" doc:"Limit of writes to the daemon's disk in MiB per second; beyond it writes wait" minimum:"0"`
	DiskLimitMiB       int     `json:"disk_limit_mib,omitempty" doc:"Limit of its disk's writes on the daemon's disk; at the limit the sandbox stalls. At least 16" minimum:"0"`
	NetRateMiB         int     `json:"net_rate_mib,omitempty" doc:"Network limit in MiB per second in each direction; beyond it connections wait, and datagrams are dropped" minimum:"0" maximum:"1048576"`
	TreeMemoryLimitMiB int     `json:"tree_memory_limit_mib,omitempty" doc:"Limit of the fork tree's host memory; beyond it the largest sandbox is ended. Needs guest_fork" minimum:"0"`
	TreeCPUs           float64 `json:"tree_cpus,omitempty" doc:"CPU limit of the fork tree" minimum:"0"`
	TreePIDs           int     `json:"tree_pids,omitempty" doc:"Limit of the VMM threads of the fork tree, vCPUs and 12 for each VM; further forks are refused. At least 32" minimum:"0"`
	TreeDiskLimitMiB   int     `json:"tree_disk_limit_mib,omitempty" doc:"Limit of the fork tree's disk writes on the daemon's disk: a fork is refused if its disk_limit_mib does not fit. Needs disk_limit_mib" minimum:"0"`
	TreeNetRateMiB     int     `json:"tree_net_rate_mib,omitempty" doc:"Network limit of the fork tree in MiB per second in each direction" minimum:"0" maximum:"1048576"`
}

// SandboxUse describes the resources a sandbox uses, as the kernel accounts for them.
type SandboxUse struct {
	MemoryBytes      int64   `json:"memory_bytes" doc:"Host memory counted against its limit: private pages, the VMM's memory, page cache"`
	MemoryPeakBytes  int64   `json:"memory_peak_bytes" doc:"Peak of memory use"`
	CPUMS            float64 `json:"cpu_ms" doc:"Time of all its CPUs since it was made, in milliseconds"`
	ThrottledMS      float64 `json:"throttled_ms" doc:"Time throttled by its CPU limit"`
	Threads          int     `json:"threads" doc:"Threads of its VMM"`
	DiskReadBytes    int64   `json:"disk_read_bytes" doc:"Read from the host's disks"`
	DiskWrittenBytes int64   `json:"disk_written_bytes" doc:"Written to them"`
	NetInBytes       int64   `json:"net_in_bytes,omitempty" doc:"Bytes received over forkd-net since its VM was started"`
	NetOutBytes      int64   `json:"net_out_bytes,omitempty" doc:"To its network"`
	NetLimitBytes    int64   `json:"net_limit_bytes_per_sec,omitempty" doc:"Limit in bytes per second in each direction: the lowest of net_rate_mib, tree_net_rate_mib, policy and ceiling; absent: no limit"`
}

// SandboxStatus is a sandbox's state.
type SandboxStatus string

const (
	SandboxRunning SandboxStatus = "running"
	SandboxFailed  SandboxStatus = "failed"
	SandboxPaused  SandboxStatus = "paused"

	SandboxPausing  SandboxStatus = "pausing"
	SandboxResuming SandboxStatus = "resuming"
	SandboxStalled  SandboxStatus = "stalled"
)

// SandboxInfo describes one sandbox. In the answer to a fork, an entry may describe a failed child:
// its status is failed, its ID is empty, and error and code give the reason.
type SandboxInfo struct {
	// Original.
	ID             string  `json:"id" doc:"Name of the sandbox: sb- and 16 random digits of base32, and 5 of its node if the daemon has one"`
	SnapshotTag    string  `json:"snapshot_tag" doc:"Snapshot it was forked from"`
	Netns          *string `json:"netns" doc:"Network namespace: always null, a sandbox needs none"`
	GuestAddr      string  `json:"guest_addr" doc:"Address of the guest, the same for all: each is alone on its network"`
	CreatedAtUnix  int64   `json:"created_at_unix" doc:"When it was forked, in seconds since 1970"`
	PID            *int    `json:"pid" doc:"Process of its VM on the daemon's host; null when it has ended, and for tenants"`
	MemoryLimitMiB *int    `json:"memory_limit_mib" doc:"Requested limit of its host memory; null: no limit"`

	// Ours.
	DNSID  string        `json:"dns_id,omitempty" doc:"Its id without dashes, as host names have it: {port}-{dns_id}.DOMAIN. Good wherever an id is"`
	Status SandboxStatus `json:"status" doc:"running; failed; paused: a snapshot until resumed; pausing; resuming; or stalled: it waits for space on the host for its disk, and then continues automatically" enum:"running,failed,paused,pausing,resuming,stalled"`
	Reason string        `json:"reason,omitempty" doc:"Cause: the end of its VM if failed, the lack of space if stalled"`
	// Warning is absent if there is no problem.
	Warning string      `json:"warning,omitempty" doc:"Problem of a running sandbox, such as lost disk writes; in the answer to a fork also unavailable parts of the request"`
	LastOOM *SandboxOOM `json:"last_oom,omitempty" doc:"The last process that the guest's kernel killed for lack of memory; absent: none was seen"`
	// RolledBackTo is absent if the sandbox was never rolled back.
	Owner        string `json:"owner,omitempty" doc:"Owning tenant; absent: the operator"`
	RolledBackTo string `json:"rolled_back_to,omitempty" doc:"Snapshot it was last rolled back to"`
	PromotedFrom string `json:"promoted_from,omitempty" doc:"Sandbox that had its state until a promotion put that in its place; absent after another rollback"`
	// PausedIn is absent if the sandbox was never paused, or was rolled back since.
	PausedIn     string            `json:"paused_in,omitempty" doc:"Snapshot of its current or last pause"`
	Cold         bool              `json:"cold,omitempty" doc:"Paused: its disk is kept without its memory, and it boots when it is resumed; running: it booted when it was last resumed"`
	Life         *SandboxLifeInfo  `json:"life,omitempty" doc:"Lifetime; absent: unlimited"`
	Labels       map[string]string `json:"labels,omitempty" doc:"Its labels"`
	Index        int               `json:"index" doc:"Index within its fork, 1 to n"`
	Fork         string            `json:"fork,omitempty" doc:"Sandbox with index 1 of its fork: the same for all children of one request on a node"`
	Node         string            `json:"node,omitempty" doc:"Name of the node of its daemon; absent: the daemon has no node name"`
	Hostname     string            `json:"hostname,omitempty" doc:"Name the guest knows itself by"`
	OwnMemoryKiB int64             `json:"own_memory_kib,omitempty" doc:"Private host memory: dirty pages, the VMM's heap, page tables; only in lists of sandboxes"`
	Use          *SandboxUse       `json:"use,omitempty" doc:"Use of the host's resources; only in lists of sandboxes, and absent if the host does not account for it"`
	SandboxLimits
	MemoryMiB    int             `json:"memory_mib,omitempty" doc:"Memory of the guest"`
	VCPUs        int             `json:"vcpus,omitempty" doc:"Virtual CPUs of the guest"`
	Network      *NetworkSummary `json:"network,omitempty" doc:"Network policy"`
	Agent        *GuestAgent     `json:"agent,omitempty" doc:"Agent of its guest; in answers to a fork, a branch and about one sandbox; absent: unknown"`
	Secrets      []HeldSecret    `json:"secrets,omitempty" doc:"Secrets that its memory or disk may contain"`
	Services     []ServiceState  `json:"services,omitempty" doc:"Services as its guest last reported them; absent: none"`
	Volumes      []VolumeMount   `json:"volumes,omitempty" doc:"Its volumes; a child of a branch has clones of its parent's"`
	NetJoin      *NetJoin        `json:"net_join,omitempty" doc:"Its place in a private network; absent: none"`
	PrivatePorts bool            `json:"private_ports,omitempty" doc:"Requests from outside to its ports must show its traffic_token"`
	TrafficToken string          `json:"traffic_token,omitempty" doc:"Token of private ports, for the header Forkd-Access-Token or Authorization: Bearer; in answers to a fork, a branch and about one sandbox"`
	GuestFork    bool            `json:"guest_fork,omitempty" doc:"Its guest can fork it"`
	Identity     bool            `json:"identity,omitempty" doc:"Its guest can get identity tokens"`
	ForkedBy     string          `json:"forked_by,omitempty" doc:"Parent sandbox, if its guest made the fork; absent if forked through the API"`
	ForkDepth    int             `json:"fork_depth,omitempty" doc:"Forks by guests from the first of its tree to it"`
	Timings      *SandboxTimings `json:"timings,omitempty" doc:"How long its fork took"`
	Error        string          `json:"error,omitempty" doc:"Why this child could not be forked"`
	Code         Code            `json:"code,omitempty" doc:"Code of the error"`
}

// SandboxOOM is a process that a guest's kernel killed for lack of memory. The guest's console
// reports it, so root in the guest can forge it.
type SandboxOOM struct {
	PID     int       `json:"pid" doc:"Process ID in the guest"`
	Process string    `json:"process" doc:"Name of its program"`
	At      time.Time `json:"at" doc:"When the console reported it, UTC"`
}

// SandboxTimings are times since the arrival of the fork's request.
type SandboxTimings struct {
	ArmedMS   float64 `json:"armed_ms" doc:"Until it was restored and stood at its gate"`
	ResumedMS float64 `json:"resumed_ms" doc:"Until its virtual CPUs ran"`
	ReadyMS   float64 `json:"ready_ms" doc:"Until its agent confirmed the new identity"`
}

// Headers of answers. After a fork they describe the whole fork, because the original's clients
// expect the body to be a plain list.
const (
	HeaderPoolReady = "Forkd-Pool-Ready"    // number of ready shells when the request arrived
	HeaderArmedWall = "Forkd-Armed-Wall-Us" // request to the last child restored at its start gate, in microseconds
	HeaderEnded     = "Forkd-Ended"         // answer to the end of a tree: sandbox IDs, separated by commas
	HeaderReadyWall = "Forkd-Ready-Wall-Us" // request to the last child's confirmed identity, in microseconds
)

// ForkLine is one line of the answer to POST /v1/sandboxes with "Accept: application/x-ndjson".
// Each child has a line as soon as it is ready or has failed, in this order. The last line has Fork
// or Error set.
type ForkLine struct {
	Child *SandboxInfo `json:"child,omitempty" doc:"Ready or failed child"`
	Fork  *ForkTotals  `json:"fork,omitempty" doc:"Totals of the fork; only in the last line"`
	Error *Error       `json:"error,omitempty" doc:"Why no child was made; only in the last line"`
}

// ForkTotals holds the totals of a fork, which headers carry if the answer is a list.
type ForkTotals struct {
	PoolReady   int     `json:"pool_ready" doc:"Prepared VMs in the pool when the request arrived"`
	ArmedWallMS float64 `json:"armed_wall_ms" doc:"To the last child restored at its gate"`
	ReadyWallMS float64 `json:"ready_wall_ms" doc:"To the last child's confirmed identity"`
}

// MemoryUse is the body of GET /v1/sandboxes/{id}/memory, as the kernel accounts for it.
type MemoryUse struct {
	VMMAnonKiB    int64 `json:"vmm_anon_kib" doc:"Anonymous memory of the VMM process without guest memory"`
	GuestDirtyKiB int64 `json:"guest_dirty_kib" doc:"Guest pages of its own"`
	PSSKiB        int64 `json:"pss_kib" doc:"Proportional set size of the process"`

	GuestSharedKiB int64 `json:"guest_shared_kib" doc:"Guest memory on host pages shared with other processes, such as siblings"`
}
