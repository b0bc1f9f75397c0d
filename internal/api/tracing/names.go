package tracing

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
)

// Names of the spans of operations and of their steps. A request's span has its method and route as its
// name.
const (
	Fork       = "fork"
	ForkArm    = "fork.arm"
	ForkReady  = "fork.ready"
	ForkChild  = "fork.child"
	Branch     = "branch"
	GuestPause = "branch.guest_pause"
	Rollback   = "rollback"
	Pause      = "pause"
	Resume     = "resume"
	Create     = "snapshot.create"
	Derive     = "snapshot.derive"
	// Step is the prefix of the engine's steps of an operation, such as step.boot. Steps that a VMM or a guest
	// reports have its name as their prefix, such as vmm.map.
	Step = "step."
)

// Attributes of the spans.
const (
	Method    = semconv.HTTPRequestMethodKey
	Route     = semconv.HTTPRouteKey
	Status    = semconv.HTTPResponseStatusCodeKey
	ErrorType = semconv.ErrorTypeKey

	Request    = attribute.Key("forkd.request_id")
	Snapshot   = attribute.Key("forkd.snapshot")
	Sandbox    = attribute.Key("forkd.sandbox")
	Index      = attribute.Key("forkd.child_index")
	Children   = attribute.Key("forkd.children")
	Failed     = attribute.Key("forkd.children_failed")
	PoolReady  = attribute.Key("forkd.pool_ready")
	Mode       = attribute.Key("forkd.branch_mode")
	Rounds     = attribute.Key("forkd.rounds")
	Bytes      = attribute.Key("forkd.bytes")
	PauseBytes = attribute.Key("forkd.bytes_paused")
	ReportedBy = attribute.Key("forkd.reported_by")
)

// MaxChildren is the maximum number of ForkChild spans of one fork. Children counts all.
const MaxChildren = 32
