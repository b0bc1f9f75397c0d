package sandbox

import (
	"time"

	"github.com/forkd/forkd/internal/leaf/secretid"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// SnapshotStatus is whether a snapshot can be forked.
type SnapshotStatus string

const (
	SnapshotWriting SnapshotStatus = "writing" // being written; listed to show that its tag is taken
	SnapshotReady   SnapshotStatus = "ready"
	SnapshotFailed  SnapshotStatus = "failed" // not restorable; Warning holds the reason
)

// SnapshotInfo describes one snapshot. It is a copy.
type SnapshotInfo struct {
	Tag   string
	Owner string // tenant; empty for the operator
	// Public is set by package tenancy if every tenant may fork the snapshot.
	Public    bool
	Dir       string // on the daemon's host
	CreatedAt time.Time
	Status    SnapshotStatus
	Warning   string // why it is not restorable; empty if it is ready

	Image       string // the image it was booted from; empty if it was made from Kernel and Rootfs
	ImageDigest string
	Kernel      string // version, if the image names it
	Cmdline     string
	Shape       vmspec.Shape
	CPU         *CPU     // seen by its guest; nil in snapshots without that record
	Languages   []string // interpreters warmed up in it
	Agent       *Agent   // in its guests; nil in snapshots without that record
	// Network is the policy of sandboxes forked from it without one. If nil, no traffic is allowed.
	Network *netpolicy.Spec
	// Secrets are those whose values it may contain.
	Secrets []HeldSecret
	// Volumes are those whose content it contains. Their mode is clone, as in its children.
	Volumes []Volume
	// PrivatePorts requires a token at the ports of sandboxes forked from it, unless the fork says otherwise.
	PrivatePorts bool
	Steps        []Step // durations of the steps of its creation
	// Labels are its owner's, for lists. They are not part of its content. The map is shared between copies.
	Labels map[string]string

	MemoryLogicalBytes  int64 // guest memory
	MemoryPhysicalBytes int64 // size of all layers on disk; zero pages take no space
	MemoryOwnBytes      int64 // part of it in layers that its parent does not have
	DiskLogicalBytes    int64 // the same for writable disks
	DiskPhysicalBytes   int64
	DiskOwnBytes        int64
	// MemoryFile is the path of the lowest layer of its memory, on the daemon's host.
	MemoryFile   string
	VMStateBytes int64
	// FetchedBytes and FetchBytes count the compressed bytes of a snapshot that has not arrived whole. Both are 0 for
	// others.
	FetchedBytes, FetchBytes int64
	// DigestsReady is false for a short time after creation, until the background has computed the content
	// digests.
	DigestsReady bool

	// Damaged lists layers whose content has changed, and where. A damaged snapshot is not forked.
	Damaged []string
	// VerifiedAt is when the last of its layers was checked; zero if a layer was never checked.
	VerifiedAt time.Time

	ParentTag         string // the snapshot it was branched from
	ParentContentHash string
	ContentHash       string   // sha256 of the manifest
	Ancestors         []string // root first
	Dependents        []string // snapshots branched from it
	Sandboxes         []string // ids of the sandboxes that run from it
	BranchedFrom      string   // id of the sandbox that it was branched from
	// Transient marks a snapshot made by a guest's fork. It is deleted with its last user.
	Transient     bool
	Pause         time.Duration
	CapturedBytes int64 // memory captured by its branch; 0 if made from an image
}

// SnapshotBrief holds the snapshot's facts that are cheap enough to return with each request.
type SnapshotBrief struct {
	Tag         string
	Owner       string // tenant; empty for the operator
	ContentHash string // empty while it is being written
	MemoryMiB   int    // of a child's guest
	// Secrets are those whose values it may contain.
	Secrets []secretid.Secret
}

// CPU is a processor as seen by a guest.
type CPU struct {
	Vendor                  string // such as GenuineIntel
	Family, Model, Stepping int
	Features                []string // Linux's names
}

// ChainDepth returns the number of ancestors.
func (s SnapshotInfo) ChainDepth() int { return len(s.Ancestors) }

// DeleteOptions controls the deletion of a snapshot with dependents.
type DeleteOptions struct {
	Cascade bool // also delete descendants
	Force   bool // delete it even if it has descendants or running sandboxes; they keep working
}

// Damage is a place where a snapshot's content differs from the data written.
type Damage struct {
	File   string
	Offset int64 // bytes
	Length int64 // damage is within this many bytes from Offset
	Detail string
}

// VerifyReport is the result of a verification.
type VerifyReport struct {
	Tag     string
	Files   int
	Bytes   int64 // hashed, without holes
	Damaged []Damage
	Took    time.Duration
}

// OK reports whether no damage was found.
func (r VerifyReport) OK() bool { return len(r.Damaged) == 0 }

// PoolStatus is the state of one tag's pool of shells.
type PoolStatus struct {
	Tag    string
	Shape  vmspec.Shape
	Wanted int
	Set    bool // Wanted was set for this tag; it is not the daemon's default
	Ready  int  // ready for a fork, prepared or plain
}

// Agent describes the agent in the guests of a snapshot, or in a sandbox. The guest reported the version and the
// capabilities.
type Agent struct {
	Version      string
	Capabilities []string
	Outdated     bool `json:"-"` // it lacks a capability of the daemon's agent
	Replaceable  bool `json:"-"` // a fork can replace it
}
