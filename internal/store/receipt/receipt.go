package receipt

import "time"

// Op is what left a receipt.
type Op string

// The operations. Fork, rollback, pause and resume are of a sandbox, the others of a snapshot.
const (
	Fork     Op = "fork"
	Rollback Op = "rollback"
	Pause    Op = "pause"
	Resume   Op = "resume"
	Branch   Op = "branch"
	Snapshot Op = "snapshot" // of a freshly booted image
)

// Receipt is one record. Times are as the daemon measured them unless a field
// says otherwise.
type Receipt struct {
	Format int    `json:"format"`
	ID     string `json:"id"` // rises with time
	Op     Op     `json:"op"`
	// Owner is the tenant that the subject belongs to; empty: the operator.
	Owner string `json:"owner,omitempty"`
	// Sandbox is the subject of a fork, a rollback, a pause and a resume, and the source of a branch.
	Sandbox string `json:"sandbox,omitempty"`
	// Snapshot is the subject of a branch and of a snapshot.
	Snapshot string    `json:"snapshot,omitempty"`
	At       time.Time `json:"at"` // of the end
	TookUS   int64     `json:"took_us"`
	// Error is why it failed; empty: it did not.
	Error string `json:"error,omitempty"`
	// Recovered: the daemon ended before it could write the receipt. The next one
	// made this from its journal, which a sandbox has only once its guest has confirmed.
	Recovered bool `json:"recovered,omitempty"`
	// Cold: of a pause, its memory was not kept; of a resume, its guest booted.
	Cold bool `json:"cold,omitempty"`

	Parent   *Source   `json:"parent,omitempty"` // what it was made from
	Made     *Source   `json:"made,omitempty"`   // the snapshot that was made
	Image    *Image    `json:"image,omitempty"`
	Before   string    `json:"before,omitempty"` // rollback: tag that the sandbox lay over until then
	Capture  *Capture  `json:"capture,omitempty"`
	VM       *VM       `json:"vm,omitempty"`
	Identity *Identity `json:"identity,omitempty"`
	Guest    *Guest    `json:"guest,omitempty"`
	Steps    []Step    `json:"steps,omitempty"`
}

// Source is a snapshot by name and by content.
type Source struct {
	Tag         string  `json:"tag"`
	ContentHash string  `json:"content_hash,omitempty"` // sha256 of the manifest
	Layers      []Layer `json:"layers,omitempty"`       // what memory, state and disks are made of
}

// Layer is a piece of a snapshot's content.
type Layer struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"` // memory, state, disk, working_set
	Bytes  int64  `json:"bytes"`
	Digest string `json:"digest,omitempty"` // sha256:<hex>; empty: not known yet
}

// Image is what a snapshot's parent was booted from.
type Image struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// Capture is how a running guest became a snapshot.
type Capture struct {
	Mode        string `json:"mode"`
	Mechanism   string `json:"mechanism"`
	PauseUS     int64  `json:"pause_us"` // by the VMM's clock
	Rounds      int    `json:"rounds"`
	Bytes       int64  `json:"bytes"`                 // of memory that was written
	PausedBytes int64  `json:"paused_bytes"`          // of them during the pause
	PauseSteps  []Step `json:"pause_steps,omitempty"` // what the pause was spent on
}

// VM is how the snapshot became a VM.
type VM struct {
	Pooled   bool  `json:"pooled"`             // its shell stood ready
	Prepared bool  `json:"prepared,omitempty"` // and was restored already: the times are of then
	MapUS    int64 `json:"map_us"`             // mapping the memory, by the VMM's clock
	StateUS  int64 `json:"state_us"`           // loading the state of CPUs and devices, by the VMM's clock
	// PopulatedPages is how many pages of its memory were mapped before it began; 0: none, or not known.
	PopulatedPages int64 `json:"populated_pages,omitempty"`
}

// Identity is who the guest was told to be.
type Identity struct {
	Index        int    `json:"index"`
	Parent       string `json:"parent"`
	Hostname     string `json:"hostname"`
	MachineID    string `json:"machine_id"`
	GenerationID string `json:"vm_generation_id"` // hex; given by the VMM
	EntropyBytes int    `json:"entropy_bytes"`    // how much fresh entropy it was sent, never which
	Way          string `json:"way,omitempty"`    // how it was told: port (the identity's own) or http; empty: not known
}

// Guest is the agent's answer: the proof.
type Guest struct {
	KernelReseeded bool          `json:"kernel_reseeded"`
	RandomDigest   string        `json:"random_digest"` // hex; of a draw after all steps
	BootID         string        `json:"boot_id"`
	ClockStepUS    int64         `json:"clock_step_us"` // wall clock after minus before
	TookUS         int64         `json:"took_us"`       // by the guest's clock, as all below
	Steps          []GuestStep   `json:"steps,omitempty"`
	Interpreters   []Interpreter `json:"interpreters,omitempty"`
	Hooks          []Hook        `json:"hooks,omitempty"`
}

// GuestStep is one step of the agent's.
type GuestStep struct {
	Name   string `json:"name"`
	Done   bool   `json:"done"` // false: there was nothing to do
	Error  string `json:"error,omitempty"`
	TookUS int64  `json:"took_us"`
}

// Interpreter is a warmed interpreter that was reseeded, or is to be.
type Interpreter struct {
	Language string   `json:"language"`
	Reseeded []string `json:"reseeded,omitempty"` // generators, such as random, numpy.random, openssl
	Later    bool     `json:"later,omitempty"`    // it is to be, before anything else runs in it
	Error    string   `json:"error,omitempty"`
	TookUS   int64    `json:"took_us"`
}

// Hook is an executable of /etc/forkd/fork.d. What it printed is not kept.
type Hook struct {
	Name     string `json:"name"`
	ExitCode int    `json:"exit_code"`
	Error    string `json:"error,omitempty"`
	TookUS   int64  `json:"took_us"`
}

// Step is one step of the daemon's.
type Step struct {
	Name   string `json:"name"`
	TookUS int64  `json:"took_us"`
	Bytes  int64  `json:"bytes,omitempty"`
}

// Kind says what a subject is the name of.
type Kind string

// The kinds of subjects.
const (
	OfSandbox  Kind = "sandbox"
	OfSnapshot Kind = "snapshot"
)

// Subject is what the receipt tells of.
func (r *Receipt) Subject() (Kind, string) {
	if r.Op == Branch || r.Op == Snapshot {
		return OfSnapshot, r.Snapshot
	}
	return OfSandbox, r.Sandbox
}
