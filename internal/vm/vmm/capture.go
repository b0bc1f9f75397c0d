package vmm

import (
	"os"
	"time"
)

// maxPauseBuffer bounds PauseBuffer.
const maxPauseBuffer = 256 << 20

// PauseBuffer returns the limit, in bytes, of the extra memory for capturing a guest with memory
// bytes, used until the capture is written. The daemon admits it.
func PauseBuffer(memory int64) int64 { return min(memory, maxPauseBuffer) }

// CaptureConfig describes a capture and its output files. The VMM can keep writing to these files,
// so a reader must copy any content it relies on.
type CaptureConfig struct {
	Memory *os.File // gets the size of guest memory; private dirty pages at their offsets, the rest holes
	State  *os.File // gets the VM's state without memory and disks
	Index  *os.File // the pages in Memory, as an extent.PageSet
	// Disks are empty files, one per disk with an overlay file, in order. Each becomes its disk's
	// new overlay file. When the capture is written, the old overlay file holds the disk's blocks
	// of the capture's instant, map included (package overlay). Status.OverlayGeneration reports
	// whether the disk has switched, also after an error.
	Disks []*os.File
	// Digest is a test mode, nil in production. The empty file receives a hash of every page of
	// memory and every block of Disks at the instant of the capture (package pagedigest). It is
	// complete when the capture is written, and makes the pause much longer.
	Digest *os.File
	Force  bool // capture even if a disk has lost writes; otherwise the capture returns ErrLost
	Live   bool // copy while the guest runs, and pause it only for the rest
	// Stay leaves the guest paused after a successful capture, until Resume. A failed capture
	// resumes it in any case.
	Stay bool
	Max  time.Duration // refuse the capture with ErrPause if the pause would be longer; 0 for no limit
	// Cut makes the capture a part of a consistent cut over several VMs (package cut). May be nil.
	Cut *os.File
}

// CloseOutput closes the files written only once by a capture. The disks' files stay open.
func (c CaptureConfig) CloseOutput() { closeAll(c.Memory, c.State, c.Index, c.Digest) }

// Close closes all files.
func (c CaptureConfig) Close() { c.CloseOutput(); closeAll(c.Disks...); closeAll(c.Cut) }

// CaptureResult holds the measurements of a capture.
type CaptureResult struct {
	Pause       time.Duration `json:"pause_ns"`     // how long the guest was paused
	Mechanism   string        `json:"mechanism"`    // "wp-async", or "none" without pre-copy
	Rounds      int           `json:"rounds"`       // pre-copy rounds while the guest ran
	Bytes       int64         `json:"bytes"`        // bytes in the memory file
	PausedBytes int64         `json:"paused_bytes"` // the part of Bytes copied during the pause
	// RunningAt is the time at which the VM ran again, as in ResumeResult.
	RunningAt int64 `json:"running_at_ns"`
	// Steps are the phases of the pause, in order.
	Steps []PauseStep `json:"steps"`
}

// PauseStep is a part of a pause.
type PauseStep struct {
	Name string        `json:"name"`    // stop, scan, state, copy, disks, digest, group or resume
	Took time.Duration `json:"took_ns"` // time since the previous step
}

// SaveConfig holds the output files of a save. All are empty. Memory and disks are written from
// their files' current positions.
type SaveConfig struct {
	Memory *os.File   // sparse, linear
	State  *os.File   // the VM's state without memory and disks
	Disks  []*os.File // sparse and flat, one per disk with an overlay file, in order
	Digest *os.File   // as in CaptureConfig
}

// Close closes all files.
func (c SaveConfig) Close() { closeAll(append([]*os.File{c.Memory, c.State, c.Digest}, c.Disks...)...) }

// SaveResult holds the byte counts of a save.
type SaveResult struct {
	MemoryBytes int64 `json:"memory_bytes"`         // non-zero pages
	StateBytes  int64 `json:"state_bytes"`          // length of the state file
	DiskBytes   int64 `json:"disk_bytes,omitempty"` // disk content without holes
}
