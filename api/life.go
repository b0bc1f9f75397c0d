package api

// AtEnd is the action at a sandbox's deadline or idle limit.
type AtEnd string

const (
	AtEndKill  AtEnd = "kill"
	AtEndPause AtEnd = "pause"
)

// SandboxLife is the lifetime of each child of a fork.
type SandboxLife struct {
	TTLSecs    float64 `json:"ttl_secs,omitempty" doc:"Lifetime from now in seconds, at least 1; absent or 0: unlimited" minimum:"0" maximum:"315360000"`
	IdleSecs   float64 `json:"idle_secs,omitempty" doc:"Idle limit in seconds, without a call, a stream or a connection to a port; at least 1; absent or 0: unlimited" minimum:"0" maximum:"315360000"`
	AtEnd      AtEnd   `json:"at_end,omitempty" doc:"Action at the end: kill (default) or pause" enum:"kill,pause"`
	AutoResume bool    `json:"auto_resume,omitempty" doc:"Resume a paused sandbox on the next request to its guest"`
	// FilesystemOnly requires at_end pause.
	FilesystemOnly bool `json:"filesystem_only,omitempty" doc:"Have the pause at its end keep its disk without its memory: its processes end, and it boots when it is resumed; needs at_end pause"`
	RestartOnHang  bool `json:"restart_on_hang,omitempty" doc:"Roll it back to its snapshot when its guest's kernel hangs"`
}

// LifeRequest is the body of PATCH /v1/sandboxes/{id}/life. Absent fields keep their value.
type LifeRequest struct {
	TTLSecs    *float64 `json:"ttl_secs,omitempty" doc:"Lifetime from now in seconds; 0: unlimited" minimum:"0" maximum:"315360000"`
	IdleSecs   *float64 `json:"idle_secs,omitempty" doc:"Idle limit in seconds; 0: unlimited" minimum:"0" maximum:"315360000"`
	AtEnd      *AtEnd   `json:"at_end,omitempty" doc:"Action at the end: kill or pause" enum:"kill,pause"`
	AutoResume *bool    `json:"auto_resume,omitempty" doc:"Resume a paused sandbox on the next request to its guest"`
	// FilesystemOnly is reset by at_end kill.
	FilesystemOnly *bool `json:"filesystem_only,omitempty" doc:"Have the pause at its end keep its disk without its memory; needs at_end pause, and ends with at_end kill"`
	RestartOnHang  *bool `json:"restart_on_hang,omitempty" doc:"Roll it back to its snapshot when its guest's kernel hangs"`
}

// PauseRequest is the body of POST /v1/sandboxes/{id}/pause.
type PauseRequest struct {
	FilesystemOnly bool `json:"filesystem_only,omitempty" doc:"Keep the disk without memory: its processes end, and it boots when resumed. 501: it has no disk or no kernel to boot"`
}

// ResumeRequest is the body of POST /v1/sandboxes/{id}/resume.
type ResumeRequest struct {
	// Peers are URLs of daemons that may have the paused sandbox, in the order in which they are asked.
	Peers []string `json:"peers,omitempty" doc:"URLs of daemons that may have the paused sandbox, asked in this order: https://HOST:PORT. The first that has it gives it up, and it goes on here. The operator of the daemon allows their hosts" maxItems:"16" nullable:"false"`
}

// HandoverRequest is the body of POST /v1/sandboxes/{id}/handover.
type HandoverRequest struct {
	Tenant     string `json:"tenant,omitempty" doc:"Find only a sandbox of this tenant"`
	Claim      string `json:"claim,omitempty" doc:"Identifies the attempt of one daemon: 32 hexadecimal digits. Absent: only describe the sandbox"`
	PausedIn   string `json:"paused_in,omitempty" doc:"Tag of the snapshot, as in the description"`
	PausedHash string `json:"paused_hash,omitempty" doc:"Its content hash, as in the description"`
	Node       string `json:"node,omitempty" doc:"Name of the node of the daemon that takes it"`
}

// Handover is a paused sandbox for another daemon.
type Handover struct {
	ID         string `json:"id" doc:"Name of the sandbox"`
	Owner      string `json:"owner,omitempty" doc:"Its tenant; absent: the operator"`
	PausedIn   string `json:"paused_in" doc:"Tag of the snapshot that it is paused in"`
	PausedHash string `json:"paused_hash" doc:"Content hash of that snapshot"`
	Record     string `json:"record,omitempty" doc:"Its state, as JSON, for a daemon of the same version. It includes its environment and its token"`
	E2B        string `json:"e2b,omitempty" doc:"Facts of E2B's API about it, as JSON, for a daemon of the same version. They include its access token"`
}

// SandboxLifeInfo describes the lifetime of a sandbox.
type SandboxLifeInfo struct {
	DeadlineUnix *int64  `json:"deadline_unix,omitempty" doc:"When its end comes, in seconds since 1970 by the host's clock; absent: never"`
	IdleSecs     float64 `json:"idle_secs,omitempty" doc:"Idle limit; absent: unlimited"`
	AtEnd        AtEnd   `json:"at_end" doc:"Action at the end: kill or pause" enum:"kill,pause"`
	AutoResume   bool    `json:"auto_resume,omitempty" doc:"A request to its guest resumes it when paused"`
	// FilesystemOnly applies to the pause at its end. SandboxInfo.Cold describes the last pause.
	FilesystemOnly bool    `json:"filesystem_only,omitempty" doc:"The pause keeps its disk without memory"`
	RestartOnHang  bool    `json:"restart_on_hang,omitempty" doc:"It is rolled back when its guest's kernel hangs"`
	UnusedSecs     float64 `json:"unused_secs,omitempty" doc:"Time since its last use, if it has an idle_secs"`
}
