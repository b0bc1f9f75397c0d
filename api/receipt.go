package api

// ReceiptOp is the operation that left a receipt.
type ReceiptOp string

const (
	ReceiptFork     ReceiptOp = "fork"
	ReceiptRollback ReceiptOp = "rollback"
	ReceiptPause    ReceiptOp = "pause"
	ReceiptResume   ReceiptOp = "resume"
	ReceiptBranch   ReceiptOp = "branch"
	ReceiptSnapshot ReceiptOp = "snapshot"
)

// Receipt is the record of a fork, a branch, a rollback or the creation of a snapshot. It outlives
// its subject.
type Receipt struct {
	ID        string    `json:"id" doc:"Name of the receipt; rises with time"`
	Op        ReceiptOp `json:"op" doc:"Recorded operation; fork, rollback, pause and resume concern a sandbox, branch and snapshot a snapshot" enum:"fork,rollback,pause,resume,branch,snapshot"`
	Sandbox   string    `json:"sandbox,omitempty" doc:"Forked or rolled back sandbox, or source of the branch"`
	Snapshot  string    `json:"snapshot,omitempty" doc:"Tag of the new snapshot"`
	AtUnixMS  int64     `json:"at_unix_ms" doc:"When it ended, in milliseconds since 1970"`
	TookMS    float64   `json:"took_ms" doc:"How long it took, from the request"`
	Error     string    `json:"error,omitempty" doc:"Why it failed; absent: it did not"`
	Recovered bool      `json:"recovered,omitempty" doc:"The daemon ended before it wrote the receipt. The next daemon made it from the journal, without the guest's answer"`
	Cold      bool      `json:"cold,omitempty" doc:"Of a pause: its memory was not kept; of a resume: its guest booted"`

	Parent   *ReceiptSource   `json:"parent,omitempty" doc:"Snapshot it was made from"`
	Made     *ReceiptSource   `json:"made,omitempty" doc:"New snapshot"`
	Image    *ReceiptImage    `json:"image,omitempty" doc:"Booted image"`
	Before   string           `json:"before,omitempty" doc:"Tag of the sandbox's snapshot before the rollback"`
	Capture  *ReceiptCapture  `json:"capture,omitempty" doc:"How a running guest became a snapshot"`
	VM       *ReceiptVM       `json:"vm,omitempty" doc:"How a snapshot became a VM"`
	Identity *ReceiptIdentity `json:"identity,omitempty" doc:"Identity given to the guest"`
	Guest    *ReceiptGuest    `json:"guest,omitempty" doc:"Proof: the guest's answer; absent: no answer"`
	Secrets  []ReceiptSecret  `json:"secrets,omitempty" doc:"Secrets that the sandbox or snapshot may contain"`
	Steps    []ReceiptStep    `json:"steps" doc:"The daemon's steps, in order; each begins when the one before it ended" nullable:"false"`
}

// ReceiptSecret is a secret in a receipt, without its value.
type ReceiptSecret struct {
	Name    string `json:"name" doc:"Name of the secret"`
	Version int    `json:"version" doc:"Version of the value"`
	Env     string `json:"env,omitempty" doc:"Environment variable with its value; absent: only an ancestor had it"`
}

// ReceiptSource identifies a snapshot by name and by content.
type ReceiptSource struct {
	Tag         string         `json:"tag" doc:"Name of the snapshot"`
	ContentHash string         `json:"content_hash,omitempty" doc:"Digest of its manifest"`
	Layers      []ReceiptLayer `json:"layers" doc:"Layers that store its content" nullable:"false"`
}

// ReceiptLayer is a piece of a snapshot's content.
type ReceiptLayer struct {
	ID     string `json:"id" doc:"Name of the layer or file"`
	Kind   string `json:"kind" doc:"memory, state, disk or working_set"`
	Bytes  int64  `json:"bytes" doc:"Its size"`
	Digest string `json:"digest,omitempty" doc:"Digest of its content; absent: it was not known then"`
}

// ReceiptImage is the image a snapshot's parent booted from.
type ReceiptImage struct {
	Name   string `json:"name" doc:"Name of the image"`
	Digest string `json:"digest" doc:"Digest of the image"`
}

// ReceiptCapture describes the capture of a running guest.
type ReceiptCapture struct {
	Mode        string        `json:"mode" doc:"live, diff or full"`
	Mechanism   string        `json:"mechanism" doc:"How writes during the capture were found"`
	PauseMS     float64       `json:"pause_ms" doc:"How long the guest stood still, by the VMM's clock"`
	Rounds      int           `json:"rounds" doc:"Rounds of copying while the guest ran"`
	Bytes       int64         `json:"bytes" doc:"Bytes of memory written"`
	PausedBytes int64         `json:"paused_bytes" doc:"Bytes of memory copied during the pause"`
	PauseSteps  []ReceiptStep `json:"pause_steps,omitempty" doc:"Steps of the pause, in order"`
}

// ReceiptVM describes the start of a VM from a snapshot.
type ReceiptVM struct {
	Pooled         bool    `json:"pooled" doc:"Whether its shell stood ready"`
	Prepared       bool    `json:"prepared,omitempty" doc:"Whether the shell was restored before the fork was asked for; the times are of then"`
	MapMS          float64 `json:"map_ms" doc:"Mapping the memory, by the VMM's clock"`
	StateMS        float64 `json:"state_ms" doc:"Loading the state of CPUs and devices, by the VMM's clock"`
	PopulatedPages int64   `json:"populated_pages,omitempty" doc:"Memory pages mapped before its start; absent: none or unknown"`
}

// ReceiptIdentity is the identity the daemon gave to the guest.
type ReceiptIdentity struct {
	Index        int    `json:"index" doc:"1 to n within its fork"`
	Parent       string `json:"parent" doc:"Snapshot it was forked from"`
	Hostname     string `json:"hostname" doc:"Its hostname"`
	MachineID    string `json:"machine_id" doc:"Its machine-id"`
	GenerationID string `json:"vm_generation_id,omitempty" doc:"VM generation ID, in hex"`
	EntropyBytes int    `json:"entropy_bytes,omitempty" doc:"How much fresh entropy it was sent"`
	Way          string `json:"way,omitempty" doc:"Transport of the identity: its own port, or HTTP if the snapshot's agent has no such port; absent: unknown" enum:"port,http"`
}

// ReceiptGuest is the agent's answer.
type ReceiptGuest struct {
	KernelReseeded bool                 `json:"kernel_reseeded" doc:"RNDADDENTROPY and RNDRESEEDCRNG succeeded"`
	RandomDigest   string               `json:"random_digest" doc:"SHA-256 of a prefix and 32 random bytes of the kernel, drawn after all steps, in hex"`
	BootID         string               `json:"boot_id" doc:"Boot id the guest gave itself"`
	ClockStepMS    float64              `json:"clock_step_ms" doc:"How far its wall clock was moved"`
	TookMS         float64              `json:"took_ms" doc:"How long all of it took, by the guest's clock, as for the rest"`
	Steps          []ReceiptGuestStep   `json:"steps" doc:"The agent's steps, in order" nullable:"false"`
	Interpreters   []ReceiptInterpreter `json:"interpreters" doc:"Reseeded warm interpreters" nullable:"false"`
	Hooks          []ReceiptHook        `json:"hooks" doc:"Executables run from /etc/forkd/fork.d" nullable:"false"`
}

// ReceiptGuestStep is one step of the agent.
type ReceiptGuestStep struct {
	Name   string  `json:"name" doc:"Name of the step"`
	Done   bool    `json:"done" doc:"False: not necessary, or failed"`
	Error  string  `json:"error,omitempty" doc:"Why it failed"`
	TookMS float64 `json:"took_ms" doc:"How long it took"`
}

// ReceiptInterpreter is a warm interpreter that was reseeded.
type ReceiptInterpreter struct {
	Language string   `json:"language" doc:"Its language"`
	Reseeded []string `json:"reseeded" doc:"Reseeded random generators" nullable:"false"`
	Later    bool     `json:"later,omitempty" doc:"They are reseeded before anything else runs in it: it evaluated, or waited for a request"`
	Error    string   `json:"error,omitempty" doc:"Why it failed"`
	TookMS   float64  `json:"took_ms" doc:"How long it took"`
}

// ReceiptHook is an executable of the image that ran.
type ReceiptHook struct {
	Name     string  `json:"name" doc:"Its file's name"`
	ExitCode int     `json:"exit_code" doc:"Its exit code"`
	Error    string  `json:"error,omitempty" doc:"Why it failed"`
	TookMS   float64 `json:"took_ms" doc:"How long it took"`
}

// ReceiptStep is one step of the daemon.
type ReceiptStep struct {
	Name   string  `json:"name" doc:"Name of the step"`
	TookMS float64 `json:"took_ms" doc:"How long it took"`
	Bytes  int64   `json:"bytes,omitempty" doc:"Bytes written"`
}
