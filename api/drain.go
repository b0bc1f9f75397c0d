package api

// DrainMode is the treatment of running sandboxes during a drain.
type DrainMode string

// The modes of a drain.
const (
	DrainPause DrainMode = "pause" // pause each with its memory and processes
	DrainWait  DrainMode = "wait"  // wait until each has ended or is paused
)

// DrainRequest is the body of POST /v1/drain.
type DrainRequest struct {
	Mode DrainMode `json:"mode,omitempty" doc:"pause: running sandboxes are paused; wait: they run on until they end" enum:"pause,wait" default:"pause"`
	// UntilRestart suits a hook that runs before a container ends.
	UntilRestart bool `json:"until_restart,omitempty" doc:"End the drain when the daemon restarts. A drain without it stays one without it" default:"false"`
}

// Drain is the state of a drain. During a drain the daemon takes no new sandboxes.
type Drain struct {
	Draining bool      `json:"draining" doc:"Whether a drain is on"`
	Mode     DrainMode `json:"mode,omitempty" doc:"Treatment of running sandboxes; absent without a drain" enum:"pause,wait"`
	// SinceUnix is absent without a drain.
	SinceUnix int64 `json:"since_unix,omitempty" doc:"When the drain was ordered, in seconds since 1970"`
	// UntilRestart is absent for a drain that restarts do not end.
	UntilRestart bool `json:"until_restart,omitempty" doc:"Whether a restart of the daemon ends the drain"`
	Empty        bool `json:"empty" doc:"Whether no sandbox has a VM and none is being made"`
	Coming       int  `json:"coming" doc:"Requests in progress, from before the drain, that may make sandboxes"`
	Paused       int  `json:"paused" doc:"Paused sandboxes"`
	// Left has the sandboxes with a VM.
	Left []DrainLeft `json:"left" doc:"Sandboxes with a VM, by ID" nullable:"false"`
}

// DrainLeft is a sandbox with a VM.
type DrainLeft struct {
	ID     string `json:"id" doc:"ID of the sandbox"`
	Tenant string `json:"tenant,omitempty" doc:"Its tenant; absent for the operator's"`
	Status string `json:"status" doc:"Its state, as in the list of sandboxes"`
	Error  string `json:"error,omitempty" doc:"Why its last pause failed; it is tried again every 30 s"`
}
