package vmmctl

import (
	"encoding/json"
	"errors"

	"github.com/forkd/forkd/internal/vmspec"
)

// MaxMessage bounds one control message in bytes, MaxFiles the descriptors in it.
const (
	MaxMessage = 64 << 10
	MaxFiles   = 160 // SCM_MAX_FD is 253
)

// maxAnswer bounds what a VMM sends, maxErrorText the error in it (JSON may
// write a byte as six): the daemon keeps a buffer of that size for each of a
// thousand VMs.
const (
	maxAnswer    = 4 << 10
	maxErrorText = 600
)

// Version of the protocol. A daemon adopts only VMMs that speak its own version.
const Version = 2

// Operations that the daemon asks for.
const (
	opBoot     = "boot"
	opRestore  = "restore"
	opPause    = "pause"
	opResume   = "resume"
	opSave     = "save"
	opCapture  = "capture"
	opCaptured = "captured" // wait until a capture is written
	opRebase   = "rebase"
	opStatus   = "status"
	opWriteHot = "write-hot"
	opPopulate = "populate"
	opStop     = "stop"
	opDialed   = "dialed" // answer to eventDial
)

// Events that the VMM sends by itself.
const (
	eventReady = "ready" // the VM exists and can take boot or restore
	eventExit  = "exit"  // the VM has ended; the process follows
	eventDial  = "dial"  // the guest connects to a host port
)

// message is what travels, in both directions.
type message struct {
	ID    uint64          `json:"id,omitempty"` // of the request, repeated in its answer
	Op    string          `json:"op,omitempty"`
	Event string          `json:"event,omitempty"`
	Error string          `json:"error,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

// Errors of a VMM, as its answer to a request.
var (
	// ErrGone: the process has ended or its control socket is closed.
	ErrGone = errors.New("VMM process is gone")
	// ErrState: the VM is not in a state that allows the operation.
	ErrState = errors.New("VM is in the wrong state")
	// ErrPause: a capture was not made because its pause would have been too long.
	ErrPause = errors.New("the pause would be too long")
)

type bootBody struct {
	Cmdline string     `json:"cmdline"`
	CID     uint32     `json:"cid"`
	Disks   []diskSpec `json:"disks,omitempty"`
	GenID   []byte     `json:"gen_id"`
	tableRef
}

type restoreBody struct {
	CID         uint32     `json:"cid"`
	GenID       []byte     `json:"gen_id"`
	Disks       []diskSpec `json:"disks,omitempty"`
	MemoryFiles int        `json:"memory_files"`
	Memory      int        `json:"memory"` // how many segments of the table
	Prepare     bool       `json:"prepare,omitempty"`
	Gate        bool       `json:"gate,omitempty"`
	Watch       bool       `json:"watch,omitempty"`
	tableRef
}

// rebaseBody has an entry per disk with an own file.
type rebaseBody struct {
	Files    []int `json:"files"`    // of its base
	Segments []int `json:"segments"` // of the table
	tableRef
}

type dialBody struct {
	Port uint32 `json:"port"`
	OK   bool   `json:"ok,omitempty"`
}

// RestoreResult tells where the time of a restore went.
type RestoreResult struct {
	MapNanos    int64 `json:"map_ns"`    // mapping the layers
	StateNanos  int64 `json:"state_ns"`  // loading CPU and device state
	ResumeNanos int64 `json:"resume_ns"` // until every vCPU thread had entered the guest
}

// ResumeResult tells when a VM began to run.
type ResumeResult struct {
	// RunningAt is when the last vCPU was about to enter the guest, in
	// nanoseconds of CLOCK_MONOTONIC.
	RunningAt int64 `json:"running_at_ns"`
}

// SaveResult tells what a save wrote.
type SaveResult struct {
	MemoryBytes int64 `json:"memory_bytes"` // pages that are not zero
	StateBytes  int64 `json:"state_bytes"`
	DiskBytes   int64 `json:"disk_bytes,omitempty"` // of disks, without their holes
}

// CaptureResult tells how a capture went.
type CaptureResult struct {
	PauseNanos  int64  `json:"pause_ns"`
	Mechanism   string `json:"mechanism"`    // "wp-async", or "none": the guest stood still
	Rounds      int    `json:"rounds"`       // of copying while the guest ran
	Bytes       int64  `json:"bytes"`        // in the memory file
	PausedBytes int64  `json:"paused_bytes"` // of them copied during the pause
	// RunningAt is when the VM ran again, as in ResumeResult.
	RunningAt int64 `json:"running_at_ns"`
	// Pause is what the pause was spent on, in order.
	Pause []PauseStep `json:"pause"`
}

// PauseStep is a part of a pause.
type PauseStep struct {
	Name  string `json:"name"`
	Nanos int64  `json:"ns"`
}

type captureBody struct {
	Live         bool  `json:"live,omitempty"`
	MaxPauseNano int64 `json:"max_pause_ns,omitempty"`
}

// State of the VM in a VMM process.
type State string

const (
	StateShell    State = "shell"    // created, neither booted nor restored
	StatePrepared State = "prepared" // restored ahead of time, and has not run: still a shell
	StateArmed    State = "armed"    // restored; its vCPUs wait at a start gate
	StateRunning  State = "running"  // its vCPUs run
	StatePaused   State = "paused"
	StateExited   State = "exited"
)

// Status is a VMM's account of itself.
type Status struct {
	Version int          `json:"version"`
	State   State        `json:"state"`
	Shape   vmspec.Shape `json:"shape"`
	CID     uint32       `json:"cid,omitempty"`
	// Rotations is how often each disk with an own file went on in another one.
	Rotations []int `json:"rotations,omitempty"`
	// GuestNanos is for how long what the host sent over vsock has waited for the
	// guest's answers, summed up, by the VMM's clock.
	GuestNanos int64 `json:"guest_ns,omitempty"`
}

// idle tells whether a VM in this state has nothing to lose: it ends with its daemon.
func (s State) idle() bool { return s == StateShell || s == StatePrepared }

// ExitKind says how a VM ended.
type ExitKind string

const (
	ExitPowerOff ExitKind = "poweroff" // the guest switched itself off
	ExitReset    ExitKind = "reset"    // the guest rebooted or panicked (panic=-1)
	ExitStopped  ExitKind = "stopped"  // asked for by the daemon
	ExitFault    ExitKind = "fault"    // triple fault or a KVM error
	ExitKilled   ExitKind = "killed"   // the VMM process was killed or crashed
)

// Exit is how and why a VM ended.
type Exit struct {
	Kind   ExitKind `json:"kind"`
	Reason string   `json:"reason"`
}
