package api

// PingResponse is the body of POST /v1/sandboxes/{id}/ping.
type PingResponse struct {
	Pong         bool    `json:"pong" doc:"Always true"`
	PID          int     `json:"pid" doc:"Process of the agent in the guest"`
	NumpyVersion *string `json:"numpy_version,omitempty" doc:"Version of numpy in the warmed interpreter, if imported"`
	UptimeMS     float64 `json:"uptime_ms" doc:"Time since the guest's boot"`
}

// ExecRequest is the body of POST /v1/sandboxes/{id}/exec, which runs a program to its end and
// collects its output. Streams and terminals use the agent route instead.
type ExecRequest struct {
	// Original.
	Args        []string `json:"args" doc:"Program and its arguments" minItems:"1" maxItems:"4096"`
	TimeoutSecs float64  `json:"timeout_secs,omitempty" doc:"Limit, at which the whole process tree is killed; 0: the daemon's default" minimum:"0" maximum:"86400"`

	// Ours.
	Env   map[string]string `json:"env,omitempty" doc:"Added to the environment"`
	Cwd   string            `json:"cwd,omitempty" doc:"Working directory" maxLength:"4096"`
	User  string            `json:"user,omitempty" doc:"User to run as; empty means the image's" maxLength:"256"`
	Stdin *string           `json:"stdin,omitempty" doc:"Standard input; absent means none"`
}

// ExecResponse is the result of a program.
type ExecResponse struct {
	// Original.
	Stdout   string `json:"stdout" doc:"Standard output; invalid UTF-8 is replaced"`
	Stderr   string `json:"stderr" doc:"Standard error; invalid UTF-8 is replaced"`
	ExitCode int    `json:"exit_code" doc:"Its exit code, 128+n if signal n ended it, 124 if the limit did"`

	// Ours.
	TimedOut     bool   `json:"timed_out,omitempty" doc:"The limit ended it"`
	KilledBy     string `json:"killed_by,omitempty" doc:"Process and time, if the guest's kernel killed it for lack of memory"`
	DroppedBytes int64  `json:"dropped_bytes,omitempty" doc:"Bytes of output beyond the limit, which were dropped"`
	StdoutRaw    []byte `json:"stdout_base64,omitempty" doc:"Standard output, if it is not UTF-8"`
	StderrRaw    []byte `json:"stderr_base64,omitempty" doc:"Standard error, if it is not UTF-8"`
}

// EvalRequest is the body of POST /v1/sandboxes/{id}/eval.
type EvalRequest struct {
	// Original.
	Code string `json:"code" doc:"Code to run; the value of its last expression is the result"`

	// Ours.
	Language    string  `json:"language,omitempty" doc:"Interpreter; empty means python" maxLength:"64"`
	TimeoutSecs float64 `json:"timeout_secs,omitempty" doc:"Limit; 0: the daemon's default" minimum:"0" maximum:"86400"`
	Measure     bool    `json:"measure,omitempty" doc:"Have guest_ms be the time from the guest's having the request to the VMM's having the answer, by the VMM's clock; for one request at a time"`
}

// EvalResponse is the answer of the warmed interpreter. An exception in the code is an answer, not
// an error of the request.
type EvalResponse struct {
	// Original.
	Result   *string `json:"result" doc:"repr of the last expression, null for none"`
	Error    *string `json:"error" doc:"Traceback, null on success"`
	ExitCode int     `json:"exit_code" doc:"0, 1 after an exception, the code's own after an exit, as of python -c"`

	// Ours.
	Stdout    string `json:"stdout,omitempty" doc:"Standard output of the code; invalid UTF-8 is replaced"`
	Stderr    string `json:"stderr,omitempty" doc:"Standard error of the code; invalid UTF-8 is replaced"`
	StdoutRaw []byte `json:"stdout_base64,omitempty" doc:"Standard output, if it is not UTF-8"`
	StderrRaw []byte `json:"stderr_base64,omitempty" doc:"Standard error, if it is not UTF-8"`
	// Truncated is DroppedBytes > 0.
	Truncated bool `json:"truncated,omitempty" doc:"The end of the output is missing"`
	// DroppedBytes is the size of the lost output: beyond 4 MiB of a stream, or text without space
	// in the daemon's memory.
	DroppedBytes int64 `json:"dropped_bytes,omitempty" doc:"Bytes dropped at the end of the texts: each stream keeps its first 4 MiB"`
	// TookMS is the request's time in the daemon. GuestMS is the part of it the guest's agent
	// measured.
	TookMS  float64 `json:"took_ms,omitempty" doc:"Milliseconds from the request's arrival to the guest's answer"`
	GuestMS float64 `json:"guest_ms,omitempty" doc:"Part measured by the agent in the guest, in milliseconds; the rest is daemon, VMM and transport"`
}

// HeaderAgentUser names the guest's user for a request on the agent route. The agent itself expects
// basic authentication, but on this route the daemon uses the Authorization header.
const HeaderAgentUser = "Forkd-Agent-User"
