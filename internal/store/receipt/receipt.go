package receipt

import "time"

// Op is the operation recorded in a receipt.
type Op string

// The operations. Fork, rollback, pause and resume concern a sandbox, the others a snapshot.
const (
	Fork     Op = "fork"
	Rollback Op = "rollback"
	Pause    Op = "pause"
	Resume   Op = "resume"
	Branch   Op = "branch"
	Snapshot Op = "snapshot" // of a freshly booted image
)

// Receipt is one record. The daemon measured the times unless a field's comment differs.
type Receipt struct {
	Format int    `json:"format"`
	ID     string `json:"id"` // grows with time
	Op     Op     `json:"op"`
	// Owner is the subject's tenant; empty for the operator.
	Owner string `json:"owner,omitempty"`
	// Sandbox is the subject of a fork, rollback, pause or resume, and the source of a branch.
	Sandbox string `json:"sandbox,omitempty"`
	// Snapshot is the subject of a branch or snapshot.
	Snapshot string    `json:"snapshot,omitempty"`
	At       time.Time `json:"at"` // end of the operation
	TookUS   int64     `json:"took_us"`
	// Error is why it failed; empty on success.
	Error string `json:"error,omitempty"`
	// Recovered means that the daemon ended before it could write the receipt. The next daemon made it from its
	// journal, which a sandbox has only once its guest has confirmed its identity.
	Recovered bool `json:"recovered,omitempty"`
	// Cold means that a pause did not keep the memory, or that a resume booted the guest.
	Cold bool `json:"cold,omitempty"`

	Parent   *Source   `json:"parent,omitempty"` // its source
	Made     *Source   `json:"made,omitempty"`   // the created snapshot
	Image    *Image    `json:"image,omitempty"`
	Before   string    `json:"before,omitempty"` // rollback: tag of the sandbox's previous base
	Capture  *Capture  `json:"capture,omitempty"`
	VM       *VM       `json:"vm,omitempty"`
	Identity *Identity `json:"identity,omitempty"`
	Guest    *Guest    `json:"guest,omitempty"`
	Steps    []Step    `json:"steps,omitempty"`
	// Secrets are those that the sandbox or the snapshot may contain.
	Secrets []Secret `json:"secrets,omitempty"`
}

// Secret is a value of a tenant's secret, without the value.
type Secret struct {
	Name     string `json:"name"`
	ID       string `json:"id"`
	Version  int    `json:"version"`
	Variable string `json:"variable,omitempty"` // environment variable with the value; empty if only an ancestor had it
}

// Source identifies a snapshot by name and content.
type Source struct {
	Tag         string  `json:"tag"`
	ContentHash string  `json:"content_hash,omitempty"` // sha256 of the manifest
	Layers      []Layer `json:"layers,omitempty"`       // of memory, state and disks
}

// Layer is one part of a snapshot's content.
type Layer struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"` // memory, state, disk, working_set
	Bytes  int64  `json:"bytes"`
	Digest string `json:"digest,omitempty"` // sha256:<hex>; empty if not known yet
}

// Image is the image from which a snapshot's parent was booted.
type Image struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// Capture describes the capture of a running guest.
type Capture struct {
	Mode        string `json:"mode"`
	Mechanism   string `json:"mechanism"`
	PauseUS     int64  `json:"pause_us"` // on the VMM's clock
	Rounds      int    `json:"rounds"`
	Bytes       int64  `json:"bytes"`                 // memory written
	PausedBytes int64  `json:"paused_bytes"`          // part of Bytes written during the pause
	PauseSteps  []Step `json:"pause_steps,omitempty"` // steps of the pause
}

// VM describes how a VM was restored from the snapshot.
type VM struct {
	Pooled   bool  `json:"pooled"`             // its shell came from the pool
	Prepared bool  `json:"prepared,omitempty"` // its shell was already restored; the times are from then
	MapUS    int64 `json:"map_us"`             // time to map the memory, on the VMM's clock
	StateUS  int64 `json:"state_us"`           // time to load the state of CPUs and devices, on the VMM's clock
	// PopulatedPages is the number of memory pages mapped before it started; 0 also if unknown.
	PopulatedPages int64 `json:"populated_pages,omitempty"`
}

// Identity is the identity given to the guest.
type Identity struct {
	Index        int    `json:"index"`
	Parent       string `json:"parent"`
	Hostname     string `json:"hostname"`
	MachineID    string `json:"machine_id"`
	GenerationID string `json:"vm_generation_id"` // hex; from the VMM
	EntropyBytes int    `json:"entropy_bytes"`    // amount of fresh entropy sent; its content is not recorded
	// Way is the channel used: port (the identity's own) or http; empty if unknown.
	Way string `json:"way,omitempty"`
}

// Guest is the agent's answer: the proof.
type Guest struct {
	KernelReseeded bool          `json:"kernel_reseeded"`
	RandomDigest   string        `json:"random_digest"` // hex; of a random draw after all steps
	BootID         string        `json:"boot_id"`
	ClockStepUS    int64         `json:"clock_step_us"` // wall clock after minus before
	TookUS         int64         `json:"took_us"`       // on the guest's clock, like all times below
	Steps          []GuestStep   `json:"steps,omitempty"`
	Interpreters   []Interpreter `json:"interpreters,omitempty"`
	Hooks          []Hook        `json:"hooks,omitempty"`
}

// GuestStep is one step by the agent.
type GuestStep struct {
	Name   string `json:"name"`
	Done   bool   `json:"done"` // false if there was no work to do
	Error  string `json:"error,omitempty"`
	TookUS int64  `json:"took_us"`
}

// Interpreter is a warmed interpreter that was reseeded, or will be.
type Interpreter struct {
	Language string   `json:"language"`
	Reseeded []string `json:"reseeded,omitempty"` // generators, such as random, numpy.random, openssl
	Later    bool     `json:"later,omitempty"`    // it will be reseeded before it runs other code
	Error    string   `json:"error,omitempty"`
	TookUS   int64    `json:"took_us"`
}

// Hook is an executable in /etc/forkd/fork.d. Its output is not kept.
type Hook struct {
	Name     string `json:"name"`
	ExitCode int    `json:"exit_code"`
	Error    string `json:"error,omitempty"`
	TookUS   int64  `json:"took_us"`
}

// Step is one step by the daemon.
type Step struct {
	Name   string `json:"name"`
	TookUS int64  `json:"took_us"`
	Bytes  int64  `json:"bytes,omitempty"`
}

// Kind is the kind of a subject.
type Kind string

// The kinds of subjects.
const (
	OfSandbox  Kind = "sandbox"
	OfSnapshot Kind = "snapshot"
)

// Subject returns the kind and name of the receipt's subject.
func (r *Receipt) Subject() (Kind, string) {
	if r.Op == Branch || r.Op == Snapshot {
		return OfSnapshot, r.Snapshot
	}
	return OfSandbox, r.Sandbox
}
