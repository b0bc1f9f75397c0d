package vmm

import (
	"os"
	"time"
)

// maxPauseBuffer bounds PauseBuffer.
const maxPauseBuffer = 256 << 20

// PauseBuffer is how much memory, in bytes, the capture of a guest with so much of it
// may take beside that, until it is written. The daemon admits it.
func PauseBuffer(memory int64) int64 { return min(memory, maxPauseBuffer) }

// CaptureConfig is where a capture goes, and how. The VMM can go on writing to its
// files: what is to be relied on is copied from them.
type CaptureConfig struct {
	Memory *os.File // becomes as large as the memory; private dirty pages at their offsets, the rest holes
	State  *os.File
	Index  *os.File // which pages are in Memory, as an extent.PageSet
	// Disks are empty files, one per disk with an overlay file, in order: the disk goes
	// on there. When the capture is written, the overlay file until now holds what is the disk's own of
	// that time, map included (package overlay). Status.OverlayGeneration tells whether it went on, also after an error.
	Disks []*os.File
	// Digest is a test mode, nil in production: an empty file that gets a hash of every
	// page of memory and every block of Disks as they were at the instant (package
	// pagedigest). It is whole when the capture is written, and makes the pause much longer.
	Digest *os.File
	Force  bool // also if a disk has lost writes, which is ErrLost otherwise
	Live   bool // copy while the guest runs, and pause it for the rest only
	// Stay leaves the guest standing still when the capture is taken: Resume lets it go on. One that fails
	// lets it go on in any case.
	Stay bool
	Max  time.Duration // no capture is made if the pause would be longer (ErrPause); 0: no limit
}

// CloseOutput closes what a capture writes once; the disks' files stay open.
func (c CaptureConfig) CloseOutput() { closeAll(c.Memory, c.State, c.Index, c.Digest) }

// Close closes all files.
func (c CaptureConfig) Close() { c.CloseOutput(); closeAll(c.Disks...) }

// CaptureResult tells how a capture went.
type CaptureResult struct {
	Pause       time.Duration `json:"pause_ns"`     // for how long the guest stood still
	Mechanism   string        `json:"mechanism"`    // "wp-async", or "none": the guest stood still
	Rounds      int           `json:"rounds"`       // of pre-copy, while the guest ran
	Bytes       int64         `json:"bytes"`        // in the memory file
	PausedBytes int64         `json:"paused_bytes"` // of them copied during the pause
	// RunningAt is when the VM ran again, as in ResumeResult.
	RunningAt int64 `json:"running_at_ns"`
	// Steps are what the pause was spent on, in order.
	Steps []PauseStep `json:"steps"`
}

// PauseStep is a part of a pause.
type PauseStep struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took_ns"`
}

// SaveConfig is where a save goes. All files are empty; memory and disks begin at
// their files' present positions.
type SaveConfig struct {
	Memory *os.File // sparse, linear
	State  *os.File
	Disks  []*os.File // sparse and flat, one per disk with an overlay file, in order
	Digest *os.File   // as in CaptureConfig
}

// Close closes all files.
func (c SaveConfig) Close() { closeAll(append([]*os.File{c.Memory, c.State, c.Digest}, c.Disks...)...) }

// SaveResult tells what a save wrote.
type SaveResult struct {
	MemoryBytes int64 `json:"memory_bytes"` // pages that are not zero
	StateBytes  int64 `json:"state_bytes"`
	DiskBytes   int64 `json:"disk_bytes,omitempty"` // of disks, without their holes
}
