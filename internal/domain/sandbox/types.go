package sandbox

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/leaf/environ"
	"github.com/forkd/forkd/internal/leaf/guestdelta"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/leaf/oomline"
	"github.com/forkd/forkd/internal/leaf/retention"
	"github.com/forkd/forkd/internal/leaf/servicespec"
	"github.com/forkd/forkd/internal/leaf/steps"
	"github.com/forkd/forkd/internal/leaf/tracecontext"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Status is the state of a sandbox. A sandbox is listed as soon as its fork has succeeded.
type Status string

const (
	StatusRunning Status = "running"
	StatusFailed  Status = "failed" // its VM ended on its own; Reason says how
	StatusPaused  Status = "paused" // it is stored as a snapshot and has no VM until it is resumed
	// The following states appear only in results of List and Get.
	StatusPausing  Status = "pausing"  // it is being paused: its guest is stopped, or will be shortly
	StatusResuming Status = "resuming" // it was paused and is getting a VM
	// StatusStalled: its guest is stopped until the host has room for its disk. Reason holds the details.
	StatusStalled Status = "stalled"
)

// Info describes one sandbox. It is a copy: changing it has no effect.
type Info struct {
	ID          string
	SnapshotTag string
	// SnapshotHash is the snapshot's content hash. The tag may be reused for another snapshot.
	SnapshotHash string
	// RolledBackTo and RolledBackHash are the tag and content hash of the snapshot it was last rolled back to.
	// They are empty if it never was.
	RolledBackTo   string
	RolledBackHash string
	// PromotedFrom is the sandbox that had its state until a promotion, which was the last rollback. That id names
	// no sandbox any more.
	PromotedFrom string `json:",omitempty"`
	// Promoting is set while it is paused to be promoted. A daemon that finds it so resumes it.
	Promoting bool `json:",omitempty"`
	Index     int  // 1 to N within its fork call; fork() returns it in the child
	// Owner is the sandbox's tenant; empty for the operator. The forks of its guest and its branches belong to
	// the same tenant.
	Owner  string `json:",omitempty"`
	Status Status
	Reason string // why it failed or stalled; empty while running
	// Stall is the reason of a stalled sandbox: ReasonDiskLimit if its own limit stopped it, ReasonDiskNoRoom if the
	// host is full. Only List and Get set it.
	Stall Reason `json:"-"`
	// PausedIn and PausedHash are the tag and content hash of the snapshot it is paused in, or was last resumed
	// from. They are empty if it was never paused, or was rolled back since.
	PausedIn   string `json:",omitempty"`
	PausedHash string `json:",omitempty"`
	// Cold means, for a paused sandbox, that only its disk is kept and it boots when it is resumed. For a running
	// sandbox it means that its last resume booted it, so its memory depends on no snapshot.
	Cold bool `json:",omitempty"`
	// Life limits how long it may run.
	Life Life `json:",omitzero"`
	// Unused is how long it has been idle. Only List and Get set it, for a running sandbox with an idle limit.
	Unused time.Duration `json:"-"`
	// Warning describes a problem that does not stop the sandbox. Only List and Get set it.
	Warning string `json:"-"`
	// Hang is the vCPU and the address at which its guest's kernel spins, or empty. Only List and Get set it.
	Hang string `json:"-"`
	// LastOOM is the last process that its guest's kernel killed for lack of memory; nil if there was none.
	LastOOM *OOM `json:",omitempty"`
	// OwnMemory is the private host memory of its VMM process, in bytes; 0 if the process has ended. Only List
	// sets it.
	OwnMemory int64 `json:"-"`
	// Use is its resource usage; nil if the host does not account for it. Only List sets it.
	Use       *Use   `json:"-"`
	DiskBytes int64  `json:",omitempty"` // that its guest can write to its disks at most
	Limits    Limits // as requested
	PID       int    // its VMM process on the daemon's host; 0 if it has ended
	CreatedAt time.Time
	Shape     vmspec.Shape
	Hostname  string
	Kin       Kin // its place in a tree of guest forks
	// Fork is the id of the first child of the request that forked it, the same for all its children. It is empty for
	// sandboxes of daemons without it.
	Fork string `json:",omitempty"`
	// BranchedFrom is the sandbox that its snapshot was branched from, if both have the same owner. It is empty if
	// its snapshot was made from an image, or elsewhere.
	BranchedFrom string `json:",omitempty"`
	Network      Network
	// HasServices is set once its guest has reported services.
	HasServices bool `json:",omitempty"`
	// AgentRenewed is set if the agent of its guest was replaced since its snapshot was made. The guest itself then
	// knows the agent's capabilities.
	AgentRenewed bool `json:",omitempty"`
	// Agent is the agent of its guest: its snapshot's, or the one that replaced it. It is nil if it is unknown. The
	// value is shared between copies and never changes. Its judgement by this daemon is only in List and Get.
	Agent *Agent `json:",omitempty"`
	// Services are those its guest last reported. Only List and Get set it.
	Services []Service `json:"-"`
	// Secrets are those that its memory or disk may contain.
	Secrets []HeldSecret `json:",omitempty"`
	// Volumes are its volumes, in the order of their devices.
	Volumes []Volume `json:",omitempty"`
	// PublicPorts admits requests from outside to its ports without a token. The zero value is closed: a record
	// without this field is a private sandbox.
	PublicPorts bool `json:",omitempty"`
	// Labels are its owner's, for lists. The map is shared between copies and never changes. A daemon that does
	// not know labels drops them when it writes the record.
	Labels map[string]string `json:",omitempty"`
	// TrafficToken admits requests from outside with this token. An empty token admits none. The API's token also
	// opens the ports. The token is a secret, and lists omit it.
	TrafficToken string `json:",omitempty"`
	// Durations of the fork's phases, from the request's arrival.
	Armed   time.Duration // until it is restored and waits at the start gate
	Resumed time.Duration // until its vCPUs run
	Ready   time.Duration // until its agent confirmed the new identity
}

// OOM is a process killed by a guest's kernel for lack of memory, as the guest's console reports it.
type OOM struct {
	PID     int
	Process string    // name of its program, printable
	At      time.Time // time of the console's last write, so at most a second or so late
	Line    string    // the console's line, to find later ones
}

// String returns the text that a command's answer has about its kill.
func (o OOM) String() string { return oomline.Text(o.PID, o.Process, o.At) }

// ParentSandbox returns the sandbox that it was forked from: by that sandbox's guest, or through a branch. It is empty
// if its snapshot was made from an image.
func (i Info) ParentSandbox() string { return cmp.Or(i.Kin.Parent, i.BranchedFrom) }

// Base returns the snapshot below its memory and disks: the one it was last paused in or rolled back to, or else
// the one it was forked from.
func (i Info) Base() (tag, hash string) {
	if i.PausedIn != "" {
		return i.PausedIn, i.PausedHash
	}
	if i.RolledBackTo != "" {
		return i.RolledBackTo, i.RolledBackHash
	}
	return i.SnapshotTag, i.SnapshotHash
}

// Needs reports whether a sandbox came from a snapshot or has it as its base. It is false for failed sandboxes.
// The tag may belong to another snapshot by now; if the hash is empty, only the tag is compared.
func (i Info) Needs(tag, hash string) bool {
	is := func(t, h string) bool { return t == tag && (hash == "" || h == "" || h == hash) }
	return i.Status != StatusFailed && (is(i.SnapshotTag, i.SnapshotHash) || is(i.RolledBackTo, i.RolledBackHash) ||
		is(i.PausedIn, i.PausedHash))
}

// Fail marks the sandbox failed because its VM has ended. It clears the PID, which the host may reuse.
func (i *Info) Fail(reason string) { i.Status, i.Reason, i.PID = StatusFailed, reason, 0 }

// Child is the result for one child of a fork: a sandbox or an error.
type Child struct {
	Index int
	Info  Info
	Err   error
}

// ForkRequest asks for N children of a snapshot.
type ForkRequest struct {
	Tag   string
	N     int    // 1 to MaxFork
	Owner string // tenant of the children; empty for the operator
	// Limits apply to each child. Each child starts a tree with a separate budget.
	Limits Limits
	// Env is added to the environment of every process started in the child.
	Env map[string]string
	// Secrets are the owner's secrets in the same environment. Their values are in no journal.
	Secrets []SecretRef
	// GuestFork lets the guests of the children, and of their descendants, fork them.
	GuestFork bool
	// Identity lets the guests of the children, and of their guests' forks, get identity tokens.
	Identity bool
	// Network is the children's policy. If nil, it is the snapshot's.
	Network *netpolicy.Spec
	// HostPorts are the host's ports that the caller may name in a policy, its own or inherited.
	HostPorts netpolicy.HostGrant
	// Join makes the children members of a private network of Owner. May be nil.
	Join *NetJoin
	// Tap is an operator's tap for the one child, used instead of a policy.
	Tap string
	// PrivatePorts requires a token for requests from outside; each child has its own token. If nil, the snapshot
	// decides.
	PrivatePorts *bool
	// Life limits how long each child may run.
	Life Life
	// Labels of each child.
	Labels map[string]string
	// OwnLabels means that the daemon itself has chosen the labels. Without it reserved ones are refused.
	OwnLabels bool
	// Services are declared in each child before it is ready.
	Services []servicespec.Spec
	// Volumes are mounted in each child.
	Volumes []VolumeMount
	// RenewAgent replaces an outdated agent even if the request does not need a newer one. A snapshot whose agent
	// cannot be replaced keeps it.
	RenewAgent bool

	// Kin is set for children forked by a guest. Except for its Key, only the engine sets it.
	Kin Kin

	// Each, if set, is called with each child as soon as it is ready or has failed. Calls come from several
	// goroutines.
	Each func(Child)
}

// MaxFork is the largest N of one ForkRequest.
const MaxFork = 1000

// ForkResult is the result of a ForkRequest.
type ForkResult struct {
	Children []Child
	// PoolReady is the number of shells in the pool when the request arrived.
	PoolReady int
	// ArmedWall is the time from the request until the last child is restored and waits at its start gate.
	// ReadyWall is the time until the last identity is confirmed.
	ArmedWall, ReadyWall time.Duration
}

// CreateRequest asks for a snapshot of a freshly booted and warmed-up image.
type CreateRequest struct {
	Tag   string
	Owner string // tenant of the snapshot; empty for the operator
	Image string // a built image; or set Kernel and Rootfs
	// Kernel and Rootfs are files on the daemon's host. The original API names a parent this way.
	Kernel, Rootfs string
	// MemoryMiB and VCPUs override the image's recipe if not 0.
	MemoryMiB, VCPUs int
	// Warm is Python code to run in the warmed interpreter after the recipe's own warm-up.
	Warm string
	// BootWait bounds the time to the agent's ready signal; 0 means DefaultBootWait.
	BootWait time.Duration
	// WarmTimeout bounds the warm-up; 0 means DefaultWarmTimeout.
	WarmTimeout time.Duration
	// Network is the policy of sandboxes forked from the snapshot without one. If nil, no traffic is allowed.
	Network *netpolicy.Spec
	// BuildNetwork is the policy during creation. If nil, it is Network.
	BuildNetwork *netpolicy.Spec
	// HostPorts are the host's ports that the caller may name in a policy, its own or inherited.
	HostPorts netpolicy.HostGrant
	// Tap is an operator's tap for the parent during creation, used instead of BuildNetwork. The snapshot's
	// sandboxes do not inherit it.
	Tap string
	// TapIfAllowed ignores a tap that is not allowed.
	TapIfAllowed bool
	// Labels of the snapshot.
	Labels map[string]string
}

// DefaultBootWait limits the time until a parent is ready. DefaultWarmTimeout limits the warm-up after that.
const (
	DefaultBootWait    = 120 * time.Second
	DefaultWarmTimeout = 10 * time.Minute
)

// Step is a running or finished step of a long operation, for progress displays.
type Step struct {
	// Name is one of boot, warm, quiesce, save; for a derivation fork, exec, warm, quiesce, capture; for a
	// compaction memory, disk0 and so on.
	Name  string
	Done  bool          // false when the step begins
	Took  time.Duration // set when Done
	Bytes int64         // written by save, capture and compaction; with Total, processed until now
	// Total is the number of bytes in all. It is set for a step in progress, neither begun nor done.
	Total int64
	// Note is the reason, for people, why a step begins again. Such a step is neither begun nor done.
	Note string
	// Output is part of the output of exec's program. Such a step sets no other field.
	Output []byte
	// Guest are the guest's own steps, as it reports them. It is set when Done.
	Guest []steps.Reported
}

// ExecRequest asks to run a program to its end and collect its output.
type ExecRequest struct {
	Args    []string
	Env     map[string]string
	Cwd     string
	User    string
	Stdin   []byte
	Timeout time.Duration // 0 means DefaultExecTimeout; at the limit the whole process tree is killed
	// Keep, if set, is called before n bytes of output are kept. It returns how many may be kept; the rest is
	// dropped and counted. Calls do not overlap.
	Keep func(n int) int
}

// DefaultExecTimeout is the limit of an exec without one. MaxOutput limits the bytes kept of each stream; the
// rest is dropped and counted.
const (
	DefaultExecTimeout = 60 * time.Second
	MaxOutput          = 8 << 20
)

// ExecResult is the result of a program.
type ExecResult struct {
	Stdout, Stderr []byte
	// DroppedBytes counts output beyond MaxOutput.
	DroppedBytes int64
	ExitCode     int // 128+n if killed by signal n, 124 if it timed out
	// KilledBy is set if the guest's kernel killed it for lack of memory.
	KilledBy string
	TimedOut bool
}

// EvalRequest runs code in the sandbox's warmed interpreter.
type EvalRequest struct {
	Language string // "" means python
	Code     string
	Timeout  time.Duration
	// Measure uses the VMM's clock to find the guest's part of the time. It is meant for one request at a time:
	// concurrent requests to the same sandbox are counted as well.
	Measure bool
	// Trace is the request's place in a trace. The code has it in its environment while it runs.
	Trace tracecontext.Context
	// Keep, if set, is called as n bytes of the answer arrive. It returns how many may be kept. If the whole
	// answer may not be kept, the error is ErrNoMemory; the code has run by then. Calls do not overlap.
	Keep func(n int) int
}

// EvalResult is the interpreter's answer.
type EvalResult struct {
	Result         string // repr of the last expression; may be empty
	Stdout, Stderr string // raw bytes
	Error          string // traceback; empty on success
	ExitCode       int    // 1 after an exception, or the code's exit status
	// DroppedBytes counts output beyond the agent's limit.
	DroppedBytes int64
	// Took is the whole request's duration here. Guest is the part that the agent measured itself. With Measure,
	// Guest is the time from the guest receiving the request until the VMM had its answer; the rest was spent in
	// the daemon and the VMM.
	Took, Guest time.Duration
}

// Pong is the agent's answer to a ping.
type Pong struct {
	PID          int // of the agent in the guest
	NumpyVersion string
	Uptime       time.Duration
}

// MemoryUse is the memory of one sandbox in KiB, from the kernel's accounting.
type MemoryUse struct {
	VMMAnonKiB    int64 // the VMM process's anonymous memory, without guest memory
	GuestDirtyKiB int64 // private dirty pages of the guest
	PSSKiB        int64
	// GuestSharedKiB is guest memory mapped by this sandbox and others: the same pages of the host's memory.
	GuestSharedKiB int64
}

// SnapshotDiff holds the differences between two snapshots.
type SnapshotDiff struct {
	Before, After string // tags
	guestdelta.Diff
	Took time.Duration
}

// DiffRequest asks for a comparison of two snapshots.
type DiffRequest struct {
	Before, After string // tags
	Limit         int    // of each list; 0 means guestdiff.DefaultLimit
	Owner         string // tenant for which their children run; empty for the operator
}

// MaxDiffList is the largest limit of a DiffRequest.
const MaxDiffList = 10_000

// CheckEnv returns an error if programs cannot be started with these variables.
func CheckEnv(env map[string]string) error {
	if err := environ.Check(env); err != nil {
		return Errorf(ErrInvalid, "", "%w", err)
	}
	return nil
}

// CheckLabels returns an error if an object cannot have these labels.
func CheckLabels(set map[string]string) error {
	err := labels.Check(set)
	if err == nil {
		err = retention.Check(set)
	}
	if err != nil {
		return Errorf(ErrInvalid, "", "%w", err)
	}
	return nil
}

// CheckGivenLabels returns an error if a client's request sets labels that only the daemon may set.
func CheckGivenLabels(set map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(set)) {
		if labels.Reserved(key) {
			return Errorf(ErrInvalid, ReasonLabelReserved, "the label %s is reserved: only the daemon sets it", key)
		}
	}
	return nil
}

// CheckGivenChange returns an error if a client's request changes labels that only the daemon may change.
func CheckGivenChange(change labels.Change) error {
	for _, key := range change.Remove {
		if labels.Reserved(key) {
			return Errorf(ErrInvalid, ReasonLabelReserved, "the label %s is reserved: only the daemon removes it", key)
		}
	}
	return CheckGivenLabels(change.Set)
}

// ChangeLabels returns an object's labels after a change.
func ChangeLabels(set map[string]string, change labels.Change) (map[string]string, error) {
	after, err := change.Apply(set)
	if err == nil {
		err = retention.Check(change.Set) // not after: a bad value of an earlier daemon blocks no other change
	}
	if err != nil {
		return nil, Errorf(ErrInvalid, "", "%w", err)
	}
	return after, nil
}

// Identity is a sandbox's identity in its guest. It stays the same for the sandbox's lifetime; entropy and clock
// are renewed with every identity.
type Identity struct {
	ID        string            `json:"id"` // also its hostname
	Index     int               `json:"index"`
	Parent    string            `json:"parent"` // tag of the snapshot it was forked from
	MachineID string            `json:"machine_id"`
	Env       map[string]string `json:"env,omitempty"`
	// ForkToken identifies the guest's fork call that created this child. If the sandbox is rolled back to that
	// moment, it becomes this child again.
	ForkToken string `json:"fork_token,omitempty"`
	// Services are declared with the identity. Later the guest keeps them itself.
	Services []servicespec.Spec `json:"-"`
	// Secrets are the values of secrets by variable, added to Env. They are never stored.
	Secrets map[string]string `json:"-"`
	// SameMachine is set for a resume: it keeps the boot id and the SSH host keys.
	SameMachine bool `json:"-"`
}

// CollectReport lists the layers that a collection removed, or would remove.
type CollectReport struct {
	DryRun    bool
	Layers    []string // ids
	Temporary int      // files left by dead writers
	Bytes     int64
}

// OracleVariable enables a daemon's oracle if it is set to 1.
const OracleVariable = "FORKD_TEST_ORACLE"

// Log messages for each compared snapshot. Tests count them.
const (
	OracleChecked  = "oracle checked"
	OracleMismatch = "oracle mismatch"
)

// MaxPool is the largest pool of one tag.
const MaxPool = 2000
