package api

// CreateSnapshotRequest is the body of POST /v1/snapshots. Image, or Kernel and Rootfs, select the
// system to boot. From selects a snapshot to fork instead.
type CreateSnapshotRequest struct {
	Tag string `json:"tag" doc:"Name of the snapshot" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _"`

	// Original.
	Kernel       string  `json:"kernel,omitempty" doc:"Path of a kernel on the daemon's host" maxLength:"4096"`
	Rootfs       string  `json:"rootfs,omitempty" doc:"Path of a root image on the daemon's host" maxLength:"4096"`
	RW           bool    `json:"rw,omitempty" doc:"Accepted and not needed: every sandbox writes to its own layer"`
	Tap          *string `json:"tap,omitempty" doc:"A tap device that it has while it is made, if the operator allows it; else ignored"`
	BootWaitSecs int     `json:"boot_wait_secs,omitempty" doc:"Limit for the guest to get ready; 0 means the daemon's default" minimum:"0" maximum:"60"`

	// Ours.
	Image     string `json:"image,omitempty" doc:"Name of a built image" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _"`
	MemoryMiB int    `json:"memory_mib,omitempty" doc:"Memory of the guest; 0 means what the image's recipe says" minimum:"0" maximum:"524288"`
	VCPUs     int    `json:"vcpus,omitempty" doc:"Virtual CPUs; 0 means what the image's recipe says" minimum:"0" maximum:"8"`
	Warm      string `json:"warm,omitempty" doc:"Python code to run in the warmed interpreter after the recipe's own warm-up, or after exec" maxLength:"1048576"`
	// WarmTimeoutSecs limits the recipe's warm-up and Warm together.
	WarmTimeoutSecs float64 `json:"warm_timeout_secs,omitempty" doc:"Limit of the warm-up; 0 means 10 minutes" minimum:"0" maximum:"86400"`

	// A snapshot on top of another.
	From            string   `json:"from,omitempty" doc:"Snapshot to fork a child of, run exec and warm in it, and keep what became of it, on top of that snapshot; instead of image" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _"`
	Exec            []string `json:"exec,omitempty" doc:"Program to run in the child, and its arguments; if it fails there is no snapshot. Only with from" maxItems:"4096"`
	ExecUser        string   `json:"exec_user,omitempty" doc:"User to run exec as; empty means the image's" maxLength:"256"`
	ExecTimeoutSecs float64  `json:"exec_timeout_secs,omitempty" doc:"Limit of exec; 0 means 10 minutes" minimum:"0" maximum:"86400"`

	// The network, for both kinds of request.
	Net      Net            `json:"net,omitempty" doc:"none or public, instead of network" enum:"none,public"`
	Network  *NetworkPolicy `json:"network,omitempty" doc:"What sandboxes that are forked from it may reach, unless their request says something else; and what may be reached while it is made. Absent: that of from, or nothing"`
	BuildNet Net            `json:"build_net,omitempty" doc:"What may be reached while it is made, instead: none or public; it leaves no trace in the snapshot" enum:"none,public"`
}

// SnapshotStatus is the state of a snapshot.
type SnapshotStatus string

const (
	SnapshotWriting SnapshotStatus = "writing"
	SnapshotReady   SnapshotStatus = "ready"
	SnapshotFailed  SnapshotStatus = "failed"
)

// SnapshotInfo describes a snapshot.
type SnapshotInfo struct {
	// Original.
	Tag           string         `json:"tag" doc:"Name of the snapshot"`
	Dir           string         `json:"dir" doc:"Directory on the daemon's host that holds it; empty for tenants"`
	CreatedAtUnix int64          `json:"created_at_unix" doc:"When it was made, in seconds since 1970"`
	BranchedFrom  *string        `json:"branched_from,omitempty" doc:"Sandbox it was branched from"`
	Transient     bool           `json:"transient,omitempty" doc:"A guest forked itself; it is deleted when no sandbox runs from it and no snapshot is built on it"`
	PauseMS       *float64       `json:"pause_ms,omitempty" doc:"How long the source stood still for it"`
	Status        SnapshotStatus `json:"status" doc:"writing, ready or failed" enum:"writing,ready,failed"`
	Bootable      bool           `json:"bootable" doc:"Whether it can be forked from"`
	Warning       *string        `json:"warning,omitempty" doc:"Something a person should know"`

	// Ours.
	ParentTag    *string        `json:"parent_tag,omitempty" doc:"Snapshot it is a diff of"`
	Image        string         `json:"image,omitempty" doc:"Image it was made of"`
	ImageDigest  string         `json:"image_digest,omitempty" doc:"Digest of that image"`
	MemoryMiB    int            `json:"memory_mib,omitempty" doc:"Memory of its children"`
	VCPUs        int            `json:"vcpus,omitempty" doc:"Virtual CPUs of its children"`
	SizeBytes    int64          `json:"size_bytes,omitempty" doc:"Bytes that it takes on the disk: its own layers and its state, without what it shares with its parent"`
	Languages    []string       `json:"languages,omitempty" doc:"Interpreters that are warm in it"`
	Network      *NetworkPolicy `json:"network,omitempty" doc:"What sandboxes that are forked from it may reach by default; absent: nothing"`
	Owner        string         `json:"owner,omitempty" doc:"Tenant that it belongs to; absent: the operator"`
	Public       bool           `json:"public,omitempty" doc:"All tenants may fork from it"`
	PrivatePorts bool           `json:"private_ports,omitempty" doc:"Sandboxes that are forked from it ask for a token at their ports by default, as the one does that it was branched from"`
	Timings      Timings        `json:"timings,omitempty" doc:"Milliseconds by step: boot, warm, quiesce, save"`
	// From the scrub.
	VerifiedAtUnix *int64   `json:"verified_at_unix,omitempty" doc:"When its layers were last read whole and found as they were written, the one that was longest ago, in seconds since 1970; missing if one never was"`
	Damaged        []string `json:"damaged,omitempty" doc:"Its layers that have changed since they were written, and where; it cannot be forked then"`
}

// Timings maps the names of steps to milliseconds.
type Timings map[string]float64

// SnapshotDetail is the body of GET /v1/snapshots/{tag}/info.
type SnapshotDetail struct {
	SnapshotInfo

	// Original.
	MemoryLogicalBytes  int64    `json:"memory_logical_bytes" doc:"Memory of a child"`
	MemoryPhysicalBytes int64    `json:"memory_physical_bytes" doc:"Bytes its memory takes on the disk, all layers of its chain"`
	VMStateBytes        int64    `json:"vmstate_bytes" doc:"Bytes of device and CPU state"`
	ParentContentHash   *string  `json:"parent_content_hash,omitempty" doc:"Digest of that snapshot when this one was made"`
	ChainDepth          int      `json:"chain_depth" doc:"Number of ancestors"`
	Ancestors           []string `json:"ancestors" doc:"Tags it is built on, root first" nullable:"false"`
	Dependents          []string `json:"dependents" doc:"Tags that are built on it" nullable:"false"`

	// Ours.
	CapturedBytes     int64 `json:"captured_bytes,omitempty" doc:"Bytes of memory that differed from the parent, as its branch took them"`
	MemoryOwnBytes    int64 `json:"memory_own_bytes" doc:"Of those the bytes of layers that its parent has not"`
	DiskLogicalBytes  int64 `json:"disk_logical_bytes" doc:"Size of the disk that a child writes to"`
	DiskPhysicalBytes int64 `json:"disk_physical_bytes" doc:"Bytes that disk takes on the disk, all layers of its chain"`
	DiskOwnBytes      int64 `json:"disk_own_bytes" doc:"Of those the bytes of layers that its parent has not"`

	KernelVersion string   `json:"kernel_version,omitempty" doc:"Kernel of the guest"`
	Cmdline       string   `json:"cmdline,omitempty" doc:"Kernel command line of the guest"`
	CPU           *CPU     `json:"cpu,omitempty" doc:"Processor that the guest has seen: a host that it is restored on must be of the same vendor and have all its features"`
	ContentHash   string   `json:"content_hash,omitempty" doc:"Digest of its manifest"`
	DigestsReady  bool     `json:"digests_ready" doc:"Whether the digests of its contents are computed; they are made in the background"`
	Sandboxes     []string `json:"sandboxes" doc:"Sandboxes that run from it now" nullable:"false"`
}

// CPU is a processor as seen by a guest.
type CPU struct {
	Vendor   string   `json:"vendor" doc:"Its maker, such as GenuineIntel or AuthenticAMD"`
	Family   int      `json:"family" doc:"Its family, as /proc/cpuinfo has it"`
	Model    int      `json:"model" doc:"Its model"`
	Stepping int      `json:"stepping" doc:"Its stepping"`
	Features []string `json:"features" doc:"What the guest may rely on, by Linux's names, and by CPUID leaf, register and bit where there is none here" nullable:"false"`
}

// VerifyResult is the body of POST /v1/snapshots/{tag}/verify. Damage is a result, not an error of
// the request.
type VerifyResult struct {
	Tag     string   `json:"tag" doc:"Name of the snapshot"`
	OK      bool     `json:"ok" doc:"Whether every byte is what was written"`
	Files   int      `json:"files" doc:"Files looked at"`
	Bytes   int64    `json:"bytes" doc:"Bytes compared with their digests; holes are not counted"`
	Damaged []Damage `json:"damaged" doc:"Where it is not" nullable:"false"`
	TookMS  float64  `json:"took_ms" doc:"How long reading all of it took"`
}

// Damage is a range of a snapshot's file with changed content.
type Damage struct {
	File   string `json:"file" doc:"Name of the file in the snapshot's directory, or layers/ID of a layer in the store"`
	Offset int64  `json:"offset" doc:"Where the range begins"`
	Length int64  `json:"length" doc:"Bytes in the range"`
	Detail string `json:"detail" doc:"What is wrong with it"`
}

// Step is one line of the progress stream of POST /v1/snapshots and of POST
// /v1/snapshots/{tag}/compact with "Accept: application/x-ndjson". The last line has Snapshot or
// Error set.
type Step struct {
	Step   string  `json:"step,omitempty" doc:"Name: boot, warm, quiesce, save; with from: fork, exec, warm, quiesce, capture; of compact: memory, and disk0, disk1 and so on for each disk of layers; of verify: verify"`
	Done   bool    `json:"done,omitempty" doc:"False when the step begins"`
	TookMS float64 `json:"took_ms,omitempty" doc:"How long it took, when done"`
	Bytes  int64   `json:"bytes,omitempty" doc:"Bytes written, when done; with total those dealt with so far"`
	Total  int64   `json:"total,omitempty" doc:"Bytes of the step in all, holes included. Such a line comes while the step is under way: it is neither a begin nor an end"`
	Note   string  `json:"note,omitempty" doc:"For people: why the step begins again. Such a line is neither a begin nor an end"`
	Output string  `json:"output,omitempty" doc:"A piece of what exec's program prints; bytes that are no UTF-8 are replaced. Such a line is neither a begin nor an end"`

	Snapshot *SnapshotInfo `json:"snapshot,omitempty" doc:"The result; only in the last line"`
	Verify   *VerifyResult `json:"verify,omitempty" doc:"The result of verify; only in the last line"`
	Error    *Error        `json:"error,omitempty" doc:"Why there is none; only in the last line"`
}
