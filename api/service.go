package api

import "time"

// ServicePattern matches the name of a service.
const ServicePattern = "^[a-z0-9][a-z0-9_-]{0,31}$"

// ServiceSpec declares a service: a program that the agent in the guest starts, watches and restarts.
type ServiceSpec struct {
	Command         []string          `json:"command" doc:"Program and its arguments. It must stay in the foreground" minItems:"1" maxItems:"64"`
	Env             map[string]string `json:"env,omitempty" doc:"Added to the sandbox's environment"`
	Cwd             string            `json:"cwd,omitempty" doc:"Working directory; absent: the image's" maxLength:"4096"`
	User            string            `json:"user,omitempty" doc:"Account in the guest; absent: the image's" maxLength:"4096"`
	Port            int               `json:"port,omitempty" doc:"TCP port it listens on; it is ready when the port accepts a connection" minimum:"0" maximum:"65535"`
	Ready           *ServiceReady     `json:"ready,omitempty" doc:"Another check; absent: the port, or without a port a running program"`
	Liveness        *ServiceLiveness  `json:"liveness,omitempty" doc:"Repeats the check while it is ready, and restarts it after failures; absent: the check ends with its first success"`
	Restart         string            `json:"restart,omitempty" doc:"When it is started again after its end; absent: always" enum:"always,on-failure,never"`
	MaxRestarts     int               `json:"max_restarts,omitempty" doc:"Restarts in a row after which it is failed; 0: no limit" minimum:"0" maximum:"1000000"`
	Backoff         *ServiceBackoff   `json:"backoff,omitempty" doc:"Waits before restarts"`
	StopSignal      string            `json:"stop_signal,omitempty" doc:"Signal that asks it to end, by name or number, such as SIGQUIT or 3; absent: SIGTERM" maxLength:"16"`
	StopTimeoutSecs float64           `json:"stop_timeout_secs,omitempty" doc:"Time from the stop signal to SIGKILL; absent: 10 s" minimum:"0" maximum:"86400"`
	LogKiB          int               `json:"log_kib,omitempty" doc:"Size of its log in the guest's memory, 4 to 4096; absent: 256" minimum:"0" maximum:"4096"`
}

// ServiceReady checks a started service.
type ServiceReady struct {
	HTTP        string   `json:"http,omitempty" doc:"Path on its port that answers with a status from 200 to 399" maxLength:"4096"`
	Command     []string `json:"command,omitempty" doc:"Program in the guest that exits with 0" maxItems:"64"`
	TimeoutSecs float64  `json:"timeout_secs,omitempty" doc:"Time after which the start has failed; absent: 60 s" minimum:"0" maximum:"86400"`
	IntervalMS  int      `json:"interval_ms,omitempty" doc:"Pause between two tries; absent: 250" minimum:"0" maximum:"86400000"`
}

// ServiceLiveness repeats the check of a service that is ready: the ready check, or else its port.
type ServiceLiveness struct {
	IntervalSecs     float64 `json:"interval_secs,omitempty" doc:"Pause between two checks, at least 1; absent: 10" minimum:"0" maximum:"86400"`
	TimeoutSecs      float64 `json:"timeout_secs,omitempty" doc:"Time after which a check has failed, at least 1; absent: 5" minimum:"0" maximum:"86400"`
	FailureThreshold int     `json:"failure_threshold,omitempty" doc:"Failures in a row after which the service is restarted; absent: 3" minimum:"0" maximum:"1000"`
}

// ServiceBackoff sets the waits before restarts. The wait doubles with each restart in a row.
type ServiceBackoff struct {
	InitialMS int     `json:"initial_ms,omitempty" doc:"Wait before the first restart, at least 10; absent: 200" minimum:"0" maximum:"86400000"`
	MaxMS     int     `json:"max_ms,omitempty" doc:"Ceiling of the wait; absent: 30000" minimum:"0" maximum:"86400000"`
	ResetSecs float64 `json:"reset_secs,omitempty" doc:"Run time after which the wait is the initial one again; absent: 60" minimum:"0" maximum:"86400"`
}

// NamedService is a service in the request of a fork.
type NamedService struct {
	Name string `json:"name" doc:"Unique in the sandbox" pattern:"^[a-z0-9][a-z0-9_-]{0,31}$" patternDescription:"1 to 32 small letters, digits, - or _"`
	ServiceSpec
}

// Service describes a service of a sandbox. The agent in the guest reports it, so root in the guest can
// forge it.
type Service struct {
	NamedService
	State        string    `json:"state" doc:"starting, ready, backing-off, failed or stopped" enum:"starting,ready,backing-off,failed,stopped"`
	PID          int       `json:"pid,omitempty" doc:"Process in the guest; absent: none runs"`
	ExitCode     *int      `json:"exit_code" doc:"Of its last run, 128 and the signal's number after a signal; null: no run has ended"`
	Restarts     int64     `json:"restarts" doc:"Restarts since it was declared"`
	Since        time.Time `json:"since" doc:"Begin of the state by the guest's clock, UTC"`
	Error        string    `json:"error,omitempty" doc:"Cause of its last failed run"`
	LogBytes     int64     `json:"log_bytes" doc:"Bytes of output since it was declared"`
	LogLostBytes int64     `json:"log_lost_bytes" doc:"Bytes of it that its log no longer has"`
}

// ServiceState is the short form of a service, in lists of sandboxes.
type ServiceState struct {
	Name     string `json:"name" doc:"Name of the service"`
	State    string `json:"state" doc:"starting, ready, backing-off, failed or stopped"`
	Restarts int64  `json:"restarts" doc:"Restarts since it was declared"`
	Error    string `json:"error,omitempty" doc:"Cause of its last failed run"`
}

// ServiceAction is the body of POST /v1/sandboxes/{id}/services/{service}.
type ServiceAction struct {
	Action string `json:"action" doc:"stop: end it until it is started; start; restart" enum:"stop,start,restart"`
}
