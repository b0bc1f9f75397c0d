package api

// BranchMode is the way a branch captures the memory of a running sandbox.
type BranchMode string

const (
	BranchLive BranchMode = "live"
	BranchDiff BranchMode = "diff"
	BranchFull BranchMode = "full"
)

// BranchRequest is the body of POST /v1/sandboxes/{id}/branch. Every field is optional, and so is
// the body.
type BranchRequest struct {
	// Original.
	Tag string `json:"tag,omitempty" doc:"Name of the new snapshot; absent: one is made" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _" nullable:"true"`
	// Mode has no default tag: the daemon must see its absence to allow Diff.
	Mode        BranchMode `json:"mode,omitempty" doc:"live (default): copy while the guest runs, then pause it for the remaining pages; diff: pause it while all pages changed since its snapshot are copied; full: like live, but the new snapshot depends on no other" enum:"full,diff,live" nullable:"true"`
	Diff        *bool      `json:"diff,omitempty" doc:"Older way to say mode diff; true not together with mode"`
	Live        *bool      `json:"live,omitempty" doc:"Older way to say mode live; true not together with mode"`
	Wait        *bool      `json:"wait,omitempty" doc:"False: answer when the sandbox runs again. The snapshot has status writing, then ready, or failed with the reason in warning" default:"true"`
	MeasureDiff bool       `json:"measure_diff,omitempty" doc:"Ignored: bytes_written is always present"`

	// Ours.
	MaxPauseMS float64           `json:"max_pause_ms,omitempty" doc:"Maximum pause of the guest; 0: no limit. If the limit cannot be met, the branch fails" minimum:"0" maximum:"3600000"`
	Labels     map[string]string `json:"labels,omitempty" doc:"Labels of the snapshot and its children, in addition to the sandbox's, which they inherit" maxProperties:"64"`
	Force      bool              `json:"force,omitempty" doc:"Branch even if the disk has lost writes; the snapshot may be incomplete. Otherwise that is a conflict"`
	Net        Net               `json:"net,omitempty" doc:"none or public, instead of network" enum:"none,public"`
	Network    *NetworkPolicy    `json:"network,omitempty" doc:"Network policy of the children, and default of later forks of the snapshot; absent: the sandbox's policy"`
	Secrets    []SecretRef       `json:"secrets,omitempty" doc:"The owner's secrets in the environment of the children" maxItems:"64"`
	N          int               `json:"n,omitempty" doc:"Children to fork from the new snapshot at once; not with wait false" minimum:"0" maximum:"1000"`
}

// BranchResult is the answer: the new snapshot and the figures of its branch. It is a SnapshotInfo
// with more fields, so clients of the original can read it.
type BranchResult struct {
	SnapshotInfo

	// Ours.
	Mechanism     string  `json:"mechanism" doc:"How writes during the capture were found: wp-async, or none where the guest stood still"`
	Rounds        int     `json:"rounds" doc:"Rounds of copying while the guest ran"`
	BytesWritten  int64   `json:"bytes_written" doc:"Bytes of memory in the new snapshot's own file"`
	PausedBytes   int64   `json:"paused_bytes" doc:"Bytes of memory copied during the pause"`
	AfterResumeMS float64 `json:"after_resume_ms" doc:"From the sandbox's running again to this answer, by the daemon's clock"`
	TotalMS       float64 `json:"total_ms" doc:"How long the request took, without the forking of children"`

	// Of the children; absent if the request has none.
	Children    []SandboxInfo `json:"children,omitempty" doc:"One entry per child asked for, as in the answer to a fork"`
	PoolReady   int           `json:"pool_ready,omitempty" doc:"Prepared VMs used from the pool"`
	ArmedWallMS float64       `json:"armed_wall_ms,omitempty" doc:"From the begin of the fork to the last child restored at its gate"`
	ReadyWallMS float64       `json:"ready_wall_ms,omitempty" doc:"From the begin of the fork to the last child's confirmed identity"`
}
