package api

// AtEnd is the action at a sandbox's deadline or idle limit.
type AtEnd string

const (
	AtEndKill  AtEnd = "kill"
	AtEndPause AtEnd = "pause"
)

// SandboxLife is the lifetime of each child of a fork.
type SandboxLife struct {
	TTLSecs    float64 `json:"ttl_secs,omitempty" doc:"Seconds that it may run from now on; at least 1; absent or 0: for ever" minimum:"0" maximum:"315360000"`
	IdleSecs   float64 `json:"idle_secs,omitempty" doc:"Seconds that it may run without being used: no call, no stream, no connection to a port; at least 1; absent or 0: for ever" minimum:"0" maximum:"315360000"`
	AtEnd      AtEnd   `json:"at_end,omitempty" doc:"What becomes of it then; absent: kill" enum:"kill,pause"`
	AutoResume bool    `json:"auto_resume,omitempty" doc:"Let it go on when somebody wants something of its guest while it is paused"`
	// FilesystemOnly requires at_end pause.
	FilesystemOnly bool `json:"filesystem_only,omitempty" doc:"Have the pause at its end keep its disk without its memory: its processes end, and it boots when it is resumed; needs at_end pause"`
	RestartOnHang  bool `json:"restart_on_hang,omitempty" doc:"Roll it back to the snapshot that it lies over when its guest's kernel hangs"`
}

// LifeRequest is the body of PATCH /v1/sandboxes/{id}/life. Absent fields keep their value.
type LifeRequest struct {
	TTLSecs    *float64 `json:"ttl_secs,omitempty" doc:"Seconds that it may run from now on; 0: for ever" minimum:"0" maximum:"315360000"`
	IdleSecs   *float64 `json:"idle_secs,omitempty" doc:"Seconds that it may run without being used; 0: for ever" minimum:"0" maximum:"315360000"`
	AtEnd      *AtEnd   `json:"at_end,omitempty" doc:"What becomes of it then" enum:"kill,pause"`
	AutoResume *bool    `json:"auto_resume,omitempty" doc:"Let it go on when somebody wants something of its guest while it is paused"`
	// FilesystemOnly is reset by at_end kill.
	FilesystemOnly *bool `json:"filesystem_only,omitempty" doc:"Have the pause at its end keep its disk without its memory; needs at_end pause, and ends with at_end kill"`
	RestartOnHang  *bool `json:"restart_on_hang,omitempty" doc:"Roll it back to the snapshot that it lies over when its guest's kernel hangs"`
}

// PauseRequest is the body of POST /v1/sandboxes/{id}/pause.
type PauseRequest struct {
	FilesystemOnly bool `json:"filesystem_only,omitempty" doc:"Keep the disk without the memory: its processes end, and it boots when it is resumed. 501: it has no disk of its own, or nothing to boot"`
}

// SandboxLifeInfo describes the lifetime of a sandbox.
type SandboxLifeInfo struct {
	DeadlineUnix *int64  `json:"deadline_unix,omitempty" doc:"When its end comes, in seconds since 1970 by the host's clock; absent: never"`
	IdleSecs     float64 `json:"idle_secs,omitempty" doc:"For how long it may run without being used; absent: for ever"`
	AtEnd        AtEnd   `json:"at_end" doc:"What becomes of it then" enum:"kill,pause"`
	AutoResume   bool    `json:"auto_resume,omitempty" doc:"It goes on when somebody wants something of its guest while it is paused"`
	// FilesystemOnly applies to the pause at its end. SandboxInfo.Cold describes the last pause.
	FilesystemOnly bool    `json:"filesystem_only,omitempty" doc:"That pause keeps its disk without its memory"`
	RestartOnHang  bool    `json:"restart_on_hang,omitempty" doc:"It is rolled back when its guest's kernel hangs"`
	UnusedSecs     float64 `json:"unused_secs,omitempty" doc:"For how long nobody has used it, if it has an idle_secs"`
}
