package sandbox

import (
	"time"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// SnapshotStatus says whether a snapshot can be forked.
type SnapshotStatus string

const (
	SnapshotWriting SnapshotStatus = "writing" // being made; listed so that its tag is seen to be taken
	SnapshotReady   SnapshotStatus = "ready"
	SnapshotFailed  SnapshotStatus = "failed" // not restorable; Warning says why
)

// SnapshotInfo describes one snapshot. It is a copy.
type SnapshotInfo struct {
	Tag   string
	Owner string // the tenant that it belongs to; empty: the operator
	// Public: all tenants may fork from it. Not the engine sets it, but what knows tenants.
	Public    bool
	Dir       string // on the daemon's host
	CreatedAt time.Time
	Status    SnapshotStatus
	Warning   string // why it is not restorable; empty when ready

	Image       string // name of the image it was booted from; empty for Kernel and Rootfs
	ImageDigest string
	Kernel      string // version, when the image names it
	Cmdline     string
	Shape       vmspec.Shape
	CPU         *CPU            // that its guest has seen; nil for one from before it was noted
	Languages   []string        // interpreters that are warm in it
	Network     *netpolicy.Spec // of sandboxes forked from it without one of their own; nil: nothing is allowed
	// PrivatePorts: sandboxes forked from it ask for a token at their ports, unless a fork says otherwise.
	PrivatePorts bool
	Steps        []Step // how long its making took, step by step

	MemoryLogicalBytes  int64 // the guest's memory
	MemoryPhysicalBytes int64 // on disk, all layers of it: pages of zeros take none
	MemoryOwnBytes      int64 // of those the layers that its parent has not
	DiskLogicalBytes    int64 // the same of the disks that are written to
	DiskPhysicalBytes   int64
	DiskOwnBytes        int64
	// MemoryFile is the path of the lowest layer of its memory, on the daemon's host.
	MemoryFile   string
	VMStateBytes int64
	// DigestsReady is false for a short while after the making: content
	// digests are computed in the background.
	DigestsReady bool

	// Damaged says which of its layers were found to have changed, and where. It is not forked then.
	Damaged []string
	// VerifiedAt is when the last of its layers to be checked was; zero if one never was.
	VerifiedAt time.Time

	ParentTag         string // the snapshot it was branched from
	ParentContentHash string
	ContentHash       string   // sha256 of the manifest
	Ancestors         []string // root first
	Dependents        []string // snapshots branched from it
	Sandboxes         []string // ids that run from it now
	BranchedFrom      string   // id of the sandbox it was branched from
	// Transient: a guest forked itself, and the snapshot goes with the last that needs it.
	Transient     bool
	Pause         time.Duration
	CapturedBytes int64 // of memory that its branch took; 0 for one made from an image
}

// SnapshotBrief is what can be told of a snapshot at once, with each request.
type SnapshotBrief struct {
	Tag         string
	Owner       string // the tenant that it belongs to; empty: the operator
	ContentHash string // empty while it is being written
	MemoryMiB   int    // of a child's guest
}

// CPU is a processor as a guest has seen it.
type CPU struct {
	Vendor                  string // such as GenuineIntel
	Family, Model, Stepping int
	Features                []string // by Linux's names
}

// ChainDepth is the number of ancestors.
func (s SnapshotInfo) ChainDepth() int { return len(s.Ancestors) }

// DeleteOptions says what may happen to those that depend on a snapshot.
type DeleteOptions struct {
	Cascade bool // delete descendants too
	Force   bool // delete although descendants or running sandboxes use it; they live on
}

// Damage is one place where a snapshot's content is not what was written.
type Damage struct {
	File   string
	Offset int64 // bytes
	Length int64 // within this range, starting at Offset
	Detail string
}

// VerifyReport is what a verification found.
type VerifyReport struct {
	Tag     string
	Files   int
	Bytes   int64 // hashed; holes are not
	Damaged []Damage
	Took    time.Duration
}

// OK reports that nothing is damaged.
func (r VerifyReport) OK() bool { return len(r.Damaged) == 0 }

// PoolStatus is the state of one tag's pool of shells.
type PoolStatus struct {
	Tag    string
	Shape  vmspec.Shape
	Wanted int
	Set    bool // Wanted was set for this tag and is not the daemon's default
	Ready  int  // that a fork can use: prepared with the snapshot, or plain
}
