package sandbox

import (
	"time"

	"github.com/forkd/forkd/internal/guest/guestdiff"
	"github.com/forkd/forkd/internal/leaf/environ"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Status of a sandbox. A sandbox is listed from the moment its fork succeeded.
type Status string

const (
	StatusRunning Status = "running"
	StatusFailed  Status = "failed" // its VM ended by itself; Reason says how
	StatusPaused  Status = "paused" // it is a snapshot: it has no VM until it is resumed
	// Those that follow are in what List and Get give, and nowhere else.
	StatusPausing  Status = "pausing"  // it is being paused: its guest stands still, or will in a moment
	StatusResuming Status = "resuming" // it was paused, and is getting a VM
	// StatusStalled: it stands still until there is room on the host for its disk; Reason says
	// for what.
	StatusStalled Status = "stalled"
)

// Info describes one sandbox. It is a copy: changing it changes nothing.
type Info struct {
	ID          string
	SnapshotTag string
	// SnapshotHash is that snapshot's content hash: the tag may be given to another.
	SnapshotHash string
	// RolledBackTo is the snapshot that it was last put back to, with that one's
	// content hash; empty: it never was.
	RolledBackTo   string
	RolledBackHash string
	Index          int // 1 to N within its fork call, as fork() tells children apart
	// Owner is the tenant that it belongs to; empty: the operator. What its guest forks, and
	// what it is branched to, is the same tenant's.
	Owner  string `json:",omitempty"`
	Status Status
	Reason string // why it failed or is stalled; empty while running
	// PausedIn is the snapshot that it is paused in, or lies over since it was resumed, with that one's content
	// hash; empty: it never was paused, or was rolled back since.
	PausedIn   string `json:",omitempty"`
	PausedHash string `json:",omitempty"`
	// Cold: paused, only its disk is kept, and it boots when it is resumed; running, it booted when it was last
	// resumed, and its memory lies over no snapshot's.
	Cold bool `json:",omitempty"`
	// Life is how long it may run.
	Life Life `json:",omitzero"`
	// Unused is for how long nobody has used it; of one that runs and may be idle for so long only, in
	// what List and Get give.
	Unused time.Duration `json:"-"`
	// Warning says what is wrong with it all the same: in what List and Get give.
	Warning string `json:"-"`
	// Hang is the vCPU and the address at which its guest's kernel spins; empty: it does not. In what List
	// and Get give.
	Hang string `json:"-"`
	// OwnMemory is the host memory, in bytes, that its VMM's process shares with nobody; 0: it
	// has none any more. In what List gives.
	OwnMemory int64 `json:"-"`
	// Use is what it uses; nil: the host does not account for it. In what List gives.
	Use       *Use   `json:"-"`
	DiskBytes int64  `json:",omitempty"` // that its guest could write to its disks
	Limits    Limits // that were asked for
	PID       int    // of its VMM process, on the daemon's host; 0 when it has ended
	CreatedAt time.Time
	Shape     vmspec.Shape
	Hostname  string
	Kin       Kin // its place in a tree of forks that guests made
	Network   Network
	// PublicPorts admits requests from outside to its ports without a token. Its zero value is closed: a record
	// that does not have it is of a private sandbox.
	PublicPorts bool `json:",omitempty"`
	// TrafficToken admits requests from outside that show it; an empty one admits none.
	// The API's token opens them without it. It is a secret: a list does not tell it.
	TrafficToken string `json:",omitempty"`
	// Timings of the fork, from the request's arrival.
	Armed   time.Duration // it is restored and waits at its gate
	Resumed time.Duration // its vCPUs run
	Ready   time.Duration // its agent confirmed the new identity
}

// Base is the snapshot that its memory and disks lie over: the one it was
// forked from, or was rolled back to or paused in since.
func (i Info) Base() (tag, hash string) {
	if i.PausedIn != "" {
		return i.PausedIn, i.PausedHash
	}
	if i.RolledBackTo != "" {
		return i.RolledBackTo, i.RolledBackHash
	}
	return i.SnapshotTag, i.SnapshotHash
}

// Needs reports whether a sandbox that has not failed came from a snapshot, or lies over it. The
// tag may be another snapshot's by now; without a hash any of that tag will do.
func (i Info) Needs(tag, hash string) bool {
	is := func(t, h string) bool { return t == tag && (hash == "" || h == "" || h == hash) }
	return i.Status != StatusFailed && (is(i.SnapshotTag, i.SnapshotHash) || is(i.RolledBackTo, i.RolledBackHash) ||
		is(i.PausedIn, i.PausedHash))
}

// Fail notes that the VM has ended; its process id may soon be another's.
func (i *Info) Fail(reason string) { i.Status, i.Reason, i.PID = StatusFailed, reason, 0 }

// Child is the result for one child of a fork: a sandbox, or the reason why not.
type Child struct {
	Index int
	Info  Info
	Err   error
}

// ForkRequest asks for N children of a snapshot.
type ForkRequest struct {
	Tag   string
	N     int    // 1 to MaxFork
	Owner string // of the children: a tenant; empty: the operator
	// Limits are of each child, but for the budget of a tree, which each begins.
	Limits Limits
	// Env is added to the environment of every process started in the child.
	Env map[string]string
	// GuestFork lets the children's guests fork them, and those in turn.
	GuestFork bool
	// Network is the children's policy; nil: the snapshot's.
	Network *netpolicy.Spec
	// HostPorts are the ports of the host that the caller may name in a policy, its own or inherited.
	HostPorts netpolicy.HostGrant
	// Tap is an operator's tap that the one child gets, instead of a policy.
	Tap string
	// PrivatePorts has requests from outside show a token, of each child's own; nil: as the
	// snapshot says.
	PrivatePorts *bool
	// Life is how long each child may run.
	Life Life

	// Kin is of children that a guest makes; only the engine sets it, but for its Key.
	Kin Kin

	// Each, if set, is called with each child as soon as it is ready or has failed,
	// from several goroutines.
	Each func(Child)
}

// MaxFork is the largest N of one ForkRequest.
const MaxFork = 1000

// ForkResult is what became of a ForkRequest.
type ForkResult struct {
	Children []Child
	// PoolReady is the number of shells that stood ready when the request arrived.
	PoolReady int
	// ArmedWall is from the request to the last child standing restored at its gate;
	// ReadyWall to its confirmed identity.
	ArmedWall, ReadyWall time.Duration
}

// CreateRequest asks for a snapshot of a freshly booted and warmed image.
type CreateRequest struct {
	Tag   string
	Owner string // of the snapshot: a tenant; empty: the operator
	Image string // name of a built image; or Kernel and Rootfs
	// Kernel and Rootfs are files on the daemon's host, the original API's way to name a parent.
	Kernel, Rootfs string
	// MemoryMiB and VCPUs override the image's recipe if not 0.
	MemoryMiB, VCPUs int
	// Warm is Python code that is run in the warmed interpreter after the recipe's own warm-up.
	Warm string
	// BootWait bounds the time to the agent's ready signal; 0 means DefaultBootWait.
	BootWait time.Duration
	// WarmTimeout bounds the warm-up; 0 means DefaultWarmTimeout.
	WarmTimeout time.Duration
	// Network is the policy of sandboxes that are forked from the snapshot without one of
	// their own; nil: nothing is allowed.
	Network *netpolicy.Spec
	// BuildNetwork is the policy while the snapshot is made; nil: Network.
	BuildNetwork *netpolicy.Spec
	// HostPorts are the ports of the host that the caller may name in a policy, its own or inherited.
	HostPorts netpolicy.HostGrant
	// Tap is an operator's tap that the parent has while the snapshot is made, instead of
	// BuildNetwork. The snapshot's sandboxes do not inherit it.
	Tap string
	// TapIfAllowed has a tap that is not allowed be ignored.
	TapIfAllowed bool
}

// DefaultBootWait is how long a parent may take to get ready, and DefaultWarmTimeout how long to warm up after that.
const (
	DefaultBootWait    = 120 * time.Second
	DefaultWarmTimeout = 10 * time.Minute
)

// Step is one finished or running step of a long operation, for progress displays.
type Step struct {
	// boot, warm, quiesce, save; of a derivation fork, exec, warm, quiesce, capture; of a compaction memory, disk0 and so on
	Name  string
	Done  bool          // false when it begins
	Took  time.Duration // when Done
	Bytes int64         // written, for save, capture and a compaction's; with Total those that are dealt with so far
	// Total is how many there are in all, of a step that is neither begun nor done but under way.
	Total int64
	// Note is for people: why a step begins again. Such a step is neither begun nor done.
	Note string
	// Output is a piece of what exec's program printed; such a step tells nothing else.
	Output []byte
}

// ExecRequest runs a program to its end and collects its output.
type ExecRequest struct {
	Args    []string
	Env     map[string]string
	Cwd     string
	User    string
	Stdin   []byte
	Timeout time.Duration // 0: DefaultExecTimeout; at the limit the whole process tree is killed
	// Keep, if set, is asked before n bytes of output are kept, and returns how many may be; the others are
	// dropped and counted. Calls come one after the other.
	Keep func(n int) int
}

// DefaultExecTimeout is the limit of an exec that names none; MaxOutput is how
// much of each stream is kept (the rest is dropped and counted).
const (
	DefaultExecTimeout = 60 * time.Second
	MaxOutput          = 8 << 20
)

// ExecResult is what a program left behind.
type ExecResult struct {
	Stdout, Stderr []byte
	// DroppedBytes counts output beyond MaxOutput.
	DroppedBytes int64
	ExitCode     int // 128+n when killed by signal n, 124 when its timeout ended it
	// KilledBy says what ended it, if that was the guest's kernel for want of memory.
	KilledBy string
	TimedOut bool
}

// EvalRequest runs code in the sandbox's warmed interpreter.
type EvalRequest struct {
	Language string // "" means python
	Code     string
	Timeout  time.Duration
	// Measure has the VMM's clock say what part of the time was the guest's. It is for
	// one request at a time: others to the same sandbox count as well.
	Measure bool
	// Keep, if set, is asked as n bytes of the answer come, and returns how many may be kept. An answer that may not be
	// kept whole is ErrBusy, after the code has run. Calls come one after the other.
	Keep func(n int) int
}

// EvalResult is what the interpreter answered.
type EvalResult struct {
	Result         string // repr of the last expression; empty for none
	Stdout, Stderr string // bytes as they came
	Error          string // traceback; empty on success
	ExitCode       int    // 1 after an exception, the code's own after an exit
	// DroppedBytes counts output beyond what the agent keeps.
	DroppedBytes int64
	// Took is the whole request's time here, Guest the part of it that the agent
	// counted as its own. With Measure it is the time from the moment at which the guest had the
	// request to the one at which the VMM had its answer; the rest is the daemon's and the VMM's.
	Took, Guest time.Duration
}

// Pong is the agent's answer to a ping.
type Pong struct {
	PID          int // of the agent in the guest
	NumpyVersion string
	Uptime       time.Duration
}

// MemoryUse is what one sandbox costs, in KiB, as the kernel accounts for it.
type MemoryUse struct {
	VMMAnonKiB    int64 // the VMM process's anonymous memory without guest memory
	GuestDirtyKiB int64 // guest pages of its own
	PSSKiB        int64
	// GuestSharedKiB is guest memory that it has mapped and others have, too: the
	// same pages of the host's memory.
	GuestSharedKiB int64
}

// SnapshotDiff is what differs in the second snapshot from the first.
type SnapshotDiff struct {
	Before, After string // tags
	guestdiff.Diff
	Took time.Duration
}

// DiffRequest asks for a comparison of two snapshots.
type DiffRequest struct {
	Before, After string // tags
	Limit         int    // of each list; 0: guestdiff.DefaultLimit
	Owner         string // for whom their children run: a tenant; empty: the operator
}

// MaxDiffList is the largest limit of a DiffSnapshots.
const MaxDiffList = 10_000

// CheckEnv returns an error unless programs can be started with these variables.
func CheckEnv(env map[string]string) error {
	if err := environ.Check(env); err != nil {
		return Errorf(ErrInvalid, "", "%w", err)
	}
	return nil
}

// Identity is who a sandbox is to its guest. It stays the same for as long as
// the sandbox lives; entropy and clock are new with every identity.
type Identity struct {
	ID        string            `json:"id"` // its hostname, too
	Index     int               `json:"index"`
	Parent    string            `json:"parent"` // tag of the snapshot that it was forked from
	MachineID string            `json:"machine_id"`
	Env       map[string]string `json:"env,omitempty"`
	// ForkToken is of the guest's call that it is a child of. Rolled back to that
	// very moment, it is that child again.
	ForkToken string `json:"fork_token,omitempty"`
	// SameMachine is set for a resume: boot id and SSH host keys stay.
	SameMachine bool `json:"-"`
}

// CollectReport is what a collection of layers removed, or would remove.
type CollectReport struct {
	DryRun    bool
	Layers    []string // ids
	Temporary int      // leftovers of writers that are dead
	Bytes     int64
}

// OracleVariable set to 1 switches the oracle of a daemon on.
const OracleVariable = "FORKD_TEST_ORACLE"

// What the log says of each snapshot that was compared. Tests count these words.
const (
	OracleChecked  = "oracle checked"
	OracleMismatch = "oracle mismatch"
)

// MaxPool is the largest pool of one tag.
const MaxPool = 2000
