package api

// CreateSandboxesRequest is the body of POST /v1/sandboxes, which forks N children.
type CreateSandboxesRequest struct {
	// Original.
	SnapshotTag    string `json:"snapshot_tag" doc:"Snapshot to fork" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _"`
	N              *int   `json:"n,omitempty" doc:"Number of children" minimum:"1" maximum:"1000" default:"1"`
	PerChildNetns  bool   `json:"per_child_netns,omitempty" doc:"Accepted and not needed: every sandbox is alone on its network"`
	MemoryLimitMiB *int   `json:"memory_limit_mib,omitempty" doc:"Bound of the host memory of each child; one that needs more is ended. At least 32; absent or 0: none that is asked for" minimum:"0"`
	LiveFork       bool   `json:"live_fork,omitempty" doc:"Accepted and not needed"`
	Prewarm        bool   `json:"prewarm,omitempty" doc:"Accepted and not needed"`
	Hugepages      bool   `json:"hugepages,omitempty" doc:"Accepted and not needed"`

	// Ours.
	Env       map[string]string `json:"env,omitempty" doc:"Added to the environment of every process started in the children"`
	GuestFork bool              `json:"guest_fork,omitempty" doc:"Let programs in the children fork them, within the daemon's limits"`
	Net       Net               `json:"net,omitempty" doc:"What the children may reach, by name: none or public; instead of network" enum:"none,public"`
	Network   *NetworkPolicy    `json:"network,omitempty" doc:"What the children may reach; absent: what the snapshot says, or nothing. Never more than the operator's ceiling"`
	// PrivatePorts is nil to use the snapshot's setting.
	SandboxLimits
	SandboxLife
	PrivatePorts *bool `json:"private_ports,omitempty" doc:"Requests from outside to the children's ports must show a token, of each child's own: traffic_token in the answer. Absent: true for tenants; for the operator what the snapshot says, or false"`
}

// SandboxLimits limit the use of the host by each child, in addition to memory_limit_mib. 0 or
// absent means no limit. A limit the host cannot enforce is an error.
type SandboxLimits struct {
	CPUs               float64 `json:"cpus,omitempty" doc:"CPUs that it may use, 0.5 for half of the time of one: beyond that it waits" minimum:"0"`
	CPUWeight          int     `json:"cpu_weight,omitempty" doc:"Its share where CPUs are short, of a tenant's among those of the tenant; one that was given none has 100" minimum:"0" maximum:"10000"`
	DiskReadLimitMiB   int     `json:"disk_read_limit_mib,omitempty" doc:"MiB a second that it may read from the disk of the daemon's data: beyond that it waits" minimum:"0"`
	DiskWriteLimitMiB  int     `json:"disk_write_limit_mib,omitempty" doc:"MiB a second that it may write there" minimum:"0"`
	DiskLimitMiB       int     `json:"disk_limit_mib,omitempty" doc:"Bound of what its disk's writes take of the daemon's disk; at it the sandbox stands still. At least 16" minimum:"0"`
	NetRateMiB         int     `json:"net_rate_mib,omitempty" doc:"MiB a second that it may have from its network, and as many to it: beyond that it waits, and datagrams are dropped" minimum:"0" maximum:"1048576"`
	TreeMemoryLimitMiB int     `json:"tree_memory_limit_mib,omitempty" doc:"Bound of the host memory of a child and all that its guest forks together; the largest is ended. Needs guest_fork" minimum:"0"`
	TreeCPUs           float64 `json:"tree_cpus,omitempty" doc:"CPUs that those may use together" minimum:"0"`
	TreePIDs           int     `json:"tree_pids,omitempty" doc:"Threads that their VMMs may have together, a vCPU and 12 counted for each: a fork beyond that is refused. At least 32" minimum:"0"`
	TreeDiskLimitMiB   int     `json:"tree_disk_limit_mib,omitempty" doc:"Bound of what their disks' writes take of the daemon's disk together: a fork whose disk_limit_mib would not fit is refused. Needs disk_limit_mib" minimum:"0"`
	TreeNetRateMiB     int     `json:"tree_net_rate_mib,omitempty" doc:"MiB a second that they may have from their network together, and as many to it" minimum:"0" maximum:"1048576"`
}

// SandboxUse describes the resources a sandbox uses, as the kernel accounts for them.
type SandboxUse struct {
	MemoryBytes      int64   `json:"memory_bytes" doc:"Host memory that its limit is about: pages of its own, its VMM's, page cache that it brought in"`
	MemoryPeakBytes  int64   `json:"memory_peak_bytes" doc:"The most that this was"`
	CPUMS            float64 `json:"cpu_ms" doc:"Time of all its CPUs since it was made, in milliseconds"`
	ThrottledMS      float64 `json:"throttled_ms" doc:"Time for which its CPU limit held it up"`
	Threads          int     `json:"threads" doc:"Threads of its VMM"`
	DiskReadBytes    int64   `json:"disk_read_bytes" doc:"Read from the host's disks"`
	DiskWrittenBytes int64   `json:"disk_written_bytes" doc:"Written to them"`
	NetInBytes       int64   `json:"net_in_bytes,omitempty" doc:"From its network, of connections that forkd-net knows, since its VM was made"`
	NetOutBytes      int64   `json:"net_out_bytes,omitempty" doc:"To its network"`
	NetLimitBytes    int64   `json:"net_limit_bytes_per_sec,omitempty" doc:"Bytes a second that it may have each way: the least of net_rate_mib, tree_net_rate_mib, its policy's and the ceiling's; absent: no limit"`
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
	ID             string  `json:"id" doc:"Name of the sandbox, sb-<hex>-<nnnn>"`
	SnapshotTag    string  `json:"snapshot_tag" doc:"Snapshot it was forked from"`
	Netns          *string `json:"netns" doc:"Network namespace: always null, a sandbox needs none"`
	GuestAddr      string  `json:"guest_addr" doc:"Address of the guest, the same for all: each is alone on its network"`
	CreatedAtUnix  int64   `json:"created_at_unix" doc:"When it was forked, in seconds since 1970"`
	PID            *int    `json:"pid" doc:"Process of its VM on the daemon's host; null when it has ended, and for tenants"`
	MemoryLimitMiB *int    `json:"memory_limit_mib" doc:"Bound of its host memory that was asked for, null for none"`

	// Ours.
	DNSID  string        `json:"dns_id,omitempty" doc:"Its id without dashes, as host names have it: {port}-{dns_id}.DOMAIN. Good wherever an id is"`
	Status SandboxStatus `json:"status" doc:"running; failed; paused: it is a snapshot until it is resumed; pausing and resuming on the way; or stalled: it stands still until there is room on the host for its disk, and then goes on by itself" enum:"running,failed,paused,pausing,resuming,stalled"`
	Reason string        `json:"reason,omitempty" doc:"How its VM ended, if failed; for what there is no room, if stalled"`
	// Warning is absent if there is no problem.
	Warning string `json:"warning,omitempty" doc:"What is wrong with a sandbox that runs: its disk has lost writes; in the answer to a fork also what was asked for and is not there"`
	// RolledBackTo is absent if the sandbox was never rolled back.
	Owner        string `json:"owner,omitempty" doc:"Tenant that it belongs to; absent: the operator"`
	RolledBackTo string `json:"rolled_back_to,omitempty" doc:"Snapshot it was last rolled back to"`
	PromotedFrom string `json:"promoted_from,omitempty" doc:"Sandbox that had its state until a promotion put that in its place; absent after another rollback"`
	// PausedIn is absent if the sandbox was never paused, or was rolled back since.
	PausedIn     string           `json:"paused_in,omitempty" doc:"Snapshot that it is paused in, or was last"`
	Cold         bool             `json:"cold,omitempty" doc:"Paused: its disk is kept without its memory, and it boots when it is resumed; running: it booted when it was last resumed"`
	Life         *SandboxLifeInfo `json:"life,omitempty" doc:"For how long it may run; absent: for ever"`
	Index        int              `json:"index" doc:"1 to n within its fork, as fork() tells children apart"`
	Hostname     string           `json:"hostname,omitempty" doc:"Name the guest knows itself by"`
	OwnMemoryKiB int64            `json:"own_memory_kib,omitempty" doc:"Host memory that it shares with nobody: pages it has written, its VMM's heap, page tables; in a list of sandboxes only"`
	Use          *SandboxUse      `json:"use,omitempty" doc:"What it uses of its host; in a list of sandboxes only, and absent if the host does not account for it"`
	SandboxLimits
	MemoryMiB    int             `json:"memory_mib,omitempty" doc:"Memory of the guest"`
	VCPUs        int             `json:"vcpus,omitempty" doc:"Virtual CPUs of the guest"`
	Network      *NetworkSummary `json:"network,omitempty" doc:"What it may reach"`
	PrivatePorts bool            `json:"private_ports,omitempty" doc:"Requests from outside to its ports must show its traffic_token"`
	TrafficToken string          `json:"traffic_token,omitempty" doc:"That token, to show in the header Forkd-Access-Token or as Authorization: Bearer; in the answer to a fork or a branch, and in that of one sandbox"`
	GuestFork    bool            `json:"guest_fork,omitempty" doc:"Its guest may fork it"`
	ForkedBy     string          `json:"forked_by,omitempty" doc:"Sandbox whose guest forked it; absent if it was forked through the API"`
	ForkDepth    int             `json:"fork_depth,omitempty" doc:"Forks by guests from the first of its tree to it"`
	Timings      *SandboxTimings `json:"timings,omitempty" doc:"How long its fork took"`
	Error        string          `json:"error,omitempty" doc:"Why this child could not be forked"`
	Code         Code            `json:"code,omitempty" doc:"Kind of that error"`
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
	Child *SandboxInfo `json:"child,omitempty" doc:"A child that is ready, or has failed"`
	Fork  *ForkTotals  `json:"fork,omitempty" doc:"What is told of the whole; only in the last line"`
	Error *Error       `json:"error,omitempty" doc:"Why no child was made; only in the last line"`
}

// ForkTotals holds the totals of a fork, which headers carry if the answer is a list.
type ForkTotals struct {
	PoolReady   int     `json:"pool_ready" doc:"Shells that stood ready when the request arrived"`
	ArmedWallMS float64 `json:"armed_wall_ms" doc:"To the last child restored at its gate"`
	ReadyWallMS float64 `json:"ready_wall_ms" doc:"To the last child's confirmed identity"`
}

// MemoryUse is the body of GET /v1/sandboxes/{id}/memory, as the kernel accounts for it.
type MemoryUse struct {
	VMMAnonKiB    int64 `json:"vmm_anon_kib" doc:"Anonymous memory of the VMM process without guest memory"`
	GuestDirtyKiB int64 `json:"guest_dirty_kib" doc:"Guest pages of its own"`
	PSSKiB        int64 `json:"pss_kib" doc:"Proportional set size of the process"`

	GuestSharedKiB int64 `json:"guest_shared_kib" doc:"Guest memory that it has mapped and other processes, such as its siblings, have too: the same pages of the host"`
}
