package api

// CreateSnapshotRequest is the body of POST /v1/snapshots. Image, or Kernel and Rootfs, select the
// system to boot. From selects a snapshot to fork instead.
type CreateSnapshotRequest struct {
	Tag string `json:"tag" doc:"Name of the snapshot" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _"`

	// Original.
	Kernel       string  `json:"kernel,omitempty" doc:"Path of a kernel on the daemon's host" maxLength:"4096"`
	Rootfs       string  `json:"rootfs,omitempty" doc:"Path of a root image on the daemon's host" maxLength:"4096"`
	RW           bool    `json:"rw,omitempty" doc:"Accepted and not needed: every sandbox writes to its own layer"`
	Tap          *string `json:"tap,omitempty" doc:"Tap device while it is made, if the operator allows it; otherwise ignored"`
	BootWaitSecs int     `json:"boot_wait_secs,omitempty" doc:"Limit for the guest to get ready; 0: the daemon's default" minimum:"0" maximum:"60"`

	// Ours.
	Image     string `json:"image,omitempty" doc:"Name of a built image" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _"`
	MemoryMiB int    `json:"memory_mib,omitempty" doc:"Memory of the guest; 0: the recipe's" minimum:"0" maximum:"524288"`
	VCPUs     int    `json:"vcpus,omitempty" doc:"Virtual CPUs; 0: the recipe's" minimum:"0" maximum:"8"`
	Warm      string `json:"warm,omitempty" doc:"Python code to run in the warmed interpreter after the recipe's own warm-up, or after exec" maxLength:"1048576"`
	// WarmTimeoutSecs limits the recipe's warm-up and Warm together.
	WarmTimeoutSecs float64 `json:"warm_timeout_secs,omitempty" doc:"Limit of the warm-up; 0 means 10 minutes" minimum:"0" maximum:"86400"`

	// A snapshot on top of another.
	From            string   `json:"from,omitempty" doc:"Parent snapshot: fork a child, run exec and warm in it, and save the result on top; replaces image" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _"`
	Exec            []string `json:"exec,omitempty" doc:"Program to run in the child, and its arguments; if it fails there is no snapshot. Only with from" maxItems:"4096"`
	ExecUser        string   `json:"exec_user,omitempty" doc:"User to run exec as; empty means the image's" maxLength:"256"`
	ExecTimeoutSecs float64  `json:"exec_timeout_secs,omitempty" doc:"Limit of exec; 0 means 10 minutes" minimum:"0" maximum:"86400"`

	Labels map[string]string `json:"labels,omitempty" doc:"Labels of the snapshot: at most 64, keys of at most 128 bytes of printable ASCII, values of at most 512 bytes, together at most 16 KiB" maxProperties:"64"`

	// The network, for both kinds of request.
	Net      Net            `json:"net,omitempty" doc:"none or public, instead of network" enum:"none,public"`
	Network  *NetworkPolicy `json:"network,omitempty" doc:"Default network policy of its sandboxes, and the policy while it is made. Absent: the policy of from, otherwise none"`
	BuildNet Net            `json:"build_net,omitempty" doc:"Network policy while it is made, none or public; not stored in the snapshot" enum:"none,public"`
}

// SnapshotStatus is the state of a snapshot.
type SnapshotStatus string

const (
	SnapshotWriting SnapshotStatus = "writing"
	SnapshotReady   SnapshotStatus = "ready"
	SnapshotFailed  SnapshotStatus = "failed"
)

// GuestAgent describes the agent in the guests of a snapshot, or in a sandbox. The guest reported it, so
// root in the guest can forge it.
type GuestAgent struct {
	Version      string   `json:"version" doc:"Version of forkd it belongs to"`
	Capabilities []string `json:"capabilities,omitempty" doc:"Its optional features"`
	Outdated     bool     `json:"outdated" doc:"Whether it lacks a feature of the daemon's agent"`
	Replaceable  bool     `json:"replaceable" doc:"Whether a fork that needs a newer agent replaces it"`
}

// SnapshotInfo describes a snapshot.
type SnapshotInfo struct {
	// Original.
	Tag           string         `json:"tag" doc:"Name of the snapshot"`
	Dir           string         `json:"dir" doc:"Directory of the snapshot on the daemon's host; empty for tenants"`
	CreatedAtUnix int64          `json:"created_at_unix" doc:"When it was made, in seconds since 1970"`
	BranchedFrom  *string        `json:"branched_from,omitempty" doc:"Sandbox it was branched from"`
	Transient     bool           `json:"transient,omitempty" doc:"A guest forked itself; it is deleted when no sandbox runs from it and no snapshot is built on it"`
	PauseMS       *float64       `json:"pause_ms,omitempty" doc:"How long the source stood still for it"`
	Status        SnapshotStatus `json:"status" doc:"writing, ready or failed" enum:"writing,ready,failed"`
	Bootable      bool           `json:"bootable" doc:"Whether it can be forked from"`
	Warning       *string        `json:"warning,omitempty" doc:"Something a person should know"`

	// Ours.
	ParentTag    *string           `json:"parent_tag,omitempty" doc:"Snapshot it is a diff of"`
	Image        string            `json:"image,omitempty" doc:"Image it was made of"`
	ImageDigest  string            `json:"image_digest,omitempty" doc:"Digest of that image"`
	MemoryMiB    int               `json:"memory_mib,omitempty" doc:"Memory of its children"`
	VCPUs        int               `json:"vcpus,omitempty" doc:"Virtual CPUs of its children"`
	SizeBytes    int64             `json:"size_bytes,omitempty" doc:"Bytes on disk: its own layers and state, without those shared with its parent"`
	Languages    []string          `json:"languages,omitempty" doc:"Warm interpreters"`
	Agent        *GuestAgent       `json:"agent,omitempty" doc:"The agent in its guests; absent: unknown"`
	Network      *NetworkPolicy    `json:"network,omitempty" doc:"Default network policy of its sandboxes; absent: none"`
	Owner        string            `json:"owner,omitempty" doc:"Owning tenant; absent: the operator"`
	Secrets      []HeldSecret      `json:"secrets,omitempty" doc:"Secrets that its memory or disks may contain. While one is not void, the snapshot cannot be published or exported"`
	Volumes      []SnapshotVolume  `json:"volumes,omitempty" doc:"Volumes whose content it contains. Its children have clones of them, also on other daemons and of other tenants"`
	Public       bool              `json:"public,omitempty" doc:"All tenants can fork it"`
	Labels       map[string]string `json:"labels,omitempty" doc:"Its labels; absent for a public snapshot of another owner"`
	Pinned       bool              `json:"pinned,omitempty" doc:"It does not expire, and is deleted with force only"`
	ExpiresAt    *int64            `json:"expires_at_unix,omitempty" doc:"When it expires, in seconds since 1970; absent: never"`
	PrivatePorts bool              `json:"private_ports,omitempty" doc:"Its sandboxes require a token at their ports by default"`
	Timings      Timings           `json:"timings,omitempty" doc:"Milliseconds by step: boot, warm, quiesce, save"`
	FetchedBytes int64             `json:"fetched_bytes,omitempty" doc:"Compressed bytes that have arrived of a snapshot that is used before all of it is here"`
	FetchBytes   int64             `json:"fetch_bytes,omitempty" doc:"Compressed bytes of that snapshot; absent if all of it is here"`
	// From the scrub.
	VerifiedAtUnix *int64   `json:"verified_at_unix,omitempty" doc:"Time of the oldest successful check of its layers, in seconds since 1970; absent if a layer was never checked"`
	Damaged        []string `json:"damaged,omitempty" doc:"Damaged layers and their positions; a damaged snapshot cannot be forked"`
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
	Dependents          []string `json:"dependents" doc:"Tags of snapshots built on it" nullable:"false"`

	// Ours.
	CapturedBytes     int64 `json:"captured_bytes,omitempty" doc:"Bytes of memory that differed from the parent at its branch"`
	MemoryOwnBytes    int64 `json:"memory_own_bytes" doc:"Part in layers that its parent does not have"`
	DiskLogicalBytes  int64 `json:"disk_logical_bytes" doc:"Size of a child's writable disk"`
	DiskPhysicalBytes int64 `json:"disk_physical_bytes" doc:"Bytes of that disk in the store, all layers of its chain"`
	DiskOwnBytes      int64 `json:"disk_own_bytes" doc:"Part in layers that its parent does not have"`

	KernelVersion string   `json:"kernel_version,omitempty" doc:"Kernel of the guest"`
	Cmdline       string   `json:"cmdline,omitempty" doc:"Kernel command line of the guest"`
	CPU           *CPU     `json:"cpu,omitempty" doc:"Processor of the guest; other hosts need the same vendor and all its features to restore it"`
	ContentHash   string   `json:"content_hash,omitempty" doc:"Digest of its manifest"`
	DigestsReady  bool     `json:"digests_ready" doc:"Whether the digests of its contents are computed; they are made in the background"`
	Sandboxes     []string `json:"sandboxes" doc:"Running sandboxes forked from it" nullable:"false"`
}

// CPU is a processor as seen by a guest.
type CPU struct {
	Vendor   string   `json:"vendor" doc:"Its maker, such as GenuineIntel or AuthenticAMD"`
	Family   int      `json:"family" doc:"CPU family, as in /proc/cpuinfo"`
	Model    int      `json:"model" doc:"Its model"`
	Stepping int      `json:"stepping" doc:"Its stepping"`
	Features []string `json:"features" doc:"CPU features of the guest, by Linux's names, or by CPUID leaf, register and bit" nullable:"false"`
}

// VerifyResult is the body of POST /v1/snapshots/{tag}/verify. Damage is a result, not an error of
// the request.
type VerifyResult struct {
	Tag     string   `json:"tag" doc:"Name of the snapshot"`
	OK      bool     `json:"ok" doc:"Whether all bytes match their digests"`
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
	Detail string `json:"detail" doc:"Description of the problem with it"`
}

// Step is one line of the progress stream of POST /v1/snapshots and of POST
// /v1/snapshots/{tag}/compact with "Accept: application/x-ndjson". The last line has Snapshot or
// Error set.
type Step struct {
	Step   string  `json:"step,omitempty" doc:"Name: boot, warm, quiesce, save; with from: fork, exec, warm, quiesce, capture; of compact: memory, and disk0, disk1 and so on for each disk of layers; of verify: verify"`
	Done   bool    `json:"done,omitempty" doc:"False when the step begins"`
	TookMS float64 `json:"took_ms,omitempty" doc:"How long it took, when done"`
	Bytes  int64   `json:"bytes,omitempty" doc:"Bytes written, when done; with total: bytes processed until now"`
	Total  int64   `json:"total,omitempty" doc:"Bytes of the step in all, holes included. Such a line comes while the step is under way: it is neither a begin nor an end"`
	Note   string  `json:"note,omitempty" doc:"For people: why the step begins again. Such a line is neither a begin nor an end"`
	Output string  `json:"output,omitempty" doc:"Part of the output of exec; invalid UTF-8 is replaced. Such a line starts and ends no step"`

	Snapshot *SnapshotInfo `json:"snapshot,omitempty" doc:"The result; only in the last line"`
	Verify   *VerifyResult `json:"verify,omitempty" doc:"The result of verify; only in the last line"`
	Error    *Error        `json:"error,omitempty" doc:"Why there is none; only in the last line"`
}

// CopySnapshotRequest asks the daemon to copy a snapshot from another daemon.
type CopySnapshotRequest struct {
	// Peers are URLs of daemons that may have the snapshot, in the order in which they are asked.
	Peers []string `json:"peers" doc:"URLs of daemons that may have the snapshot, asked in this order: https://HOST:PORT. The operator of the daemon allows their hosts" minItems:"1" maxItems:"16" nullable:"false"`
}

// Headers of a snapshot's manifest for another daemon.
const (
	HeaderSnapshotTag    = "Forkd-Snapshot-Tag"    // the whole tag
	HeaderSnapshotOwner  = "Forkd-Snapshot-Owner"  // its tenant; absent: the operator
	HeaderSnapshotPublic = "Forkd-Snapshot-Public" // true if all tenants can fork it
)
