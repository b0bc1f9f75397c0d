package vmproc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/rundir"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// What a VM writes to a disk goes to an overlay file (package overlay). These files
// lie in the store: the run directory is memory. Their names begin with that of
// the run directory in which the VM was made, and a sandbox's journal lists
// them: what no journal lists belongs to nobody.

func overlayFile(vmDir string, disk int) string {
	return fmt.Sprintf("%s-disk%d", filepath.Base(vmDir), disk)
}

// NewOverlay makes an empty overlay file for a disk beside the one that it has.
func (m *VM) NewOverlay(disk int) (*os.File, error) {
	f, err := os.CreateTemp(m.sup.cfg.Overlays, overlayFile(m.Dir, disk)+"-*")
	if err != nil {
		return nil, overlayError(err)
	}
	return f, nil
}

// Disk is what a VM's writable disk is made of, from below: layers, frozen overlays,
// and the overlay that is written to. The journal has it.
type Disk struct {
	Index   int        `json:"disk"`              // among the VM's disks
	Backing []layer.ID `json:"backing,omitempty"` // base first; empty: it lies over an image's empty disk
	// Frozen are paths of overlays that a branch has frozen and that are no layer yet; at
	// most one, but for a branch that has failed just now.
	Frozen  []string `json:"frozen,omitempty"`
	Overlay string   `json:"overlay"` // path; empty: its sandbox is paused without its memory
	// Next is the path of a file that a branch has handed over as the next overlay.
	// Whether the VMM has switched to it, its count of generations tells.
	Next       string `json:"next,omitempty"`
	Generation int    `json:"generation,omitempty"` // that this record knows of
}

// Disks are a VM's writable disks, in their order. The VM and its sandbox share them.
type Disks struct {
	mu     sync.Mutex // guards what follows; taken last
	disks  []Disk
	pinned bool // the sandbox has a pin of its own on layers
}

// NewDisks are those of a journal.
func NewDisks(disks []Disk) *Disks { return &Disks{disks: disks} }

// List is a copy of the disks.
func (o *Disks) List() []Disk {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := slices.Clone(o.disks)
	for i := range out {
		out[i].Frozen = slices.Clone(out[i].Frozen)
	}
	return out
}

// Set replaces them.
func (o *Disks) Set(disks []Disk) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.disks = disks
}

// Paths are all files of the disks.
func (o *Disks) Paths() []string {
	var all []string
	for _, d := range o.List() {
		all = append(all, d.Frozen...)
		for _, path := range []string{d.Overlay, d.Next} {
			if path != "" {
				all = append(all, path)
			}
		}
	}
	return all
}

// SetPinned notes that the sandbox has a pin on layers.
func (o *Disks) SetPinned() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pinned = true
}

// Pinned reports whether the sandbox has a pin on layers.
func (o *Disks) Pinned() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pinned
}

// OpenOverlays completes disks for a VM: those that are written get an empty overlay
// file over backing layers, in their order. The caller closes them with close once the
// VMM has them; Discard removes them.
func (m *VM) OpenOverlays(disks []vmm.Disk, backing [][]layer.ID) (_ []vmm.Disk, close func(), err error) {
	var files []*os.File
	close = func() {
		for _, f := range files {
			f.Close()
		}
	}
	out := make([]vmm.Disk, len(disks))
	var made []Disk
	for i, d := range disks {
		if out[i] = d; d.File != nil {
			continue
		}
		path := filepath.Join(m.sup.cfg.Overlays, overlayFile(m.Dir, i))
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			close()
			return nil, nil, overlayError(err)
		}
		own := Disk{Index: i, Overlay: path}
		if len(made) < len(backing) {
			own.Backing = backing[len(made)]
		}
		files, out[i].Overlay, made = append(files, f), f, append(made, own)
		out[i].Reserve, out[i].Limit = m.sup.cfg.DiskReserve, m.diskLimit
		m.Disks.Set(made)
	}
	return out, close, nil
}

func overlayError(err error) error {
	err = fmt.Errorf("make the file of a sandbox's disk: %w", err)
	if sandbox.IsNoSpace(err) {
		return sandbox.Errorf(sandbox.ErrNoSpace, sandbox.ReasonOverlayNoRoom, "%w", err)
	}
	return err
}

// Remove removes what a VM that has ended leaves.
func (s *Supervisor) Remove(dir string, overlays []string) {
	for _, path := range overlays { // first: the directory's presence says that they may be needed
		os.Remove(path)
	}
	s.removeDir(dir)
}

// SweepOverlays removes the overlay files that are not used: of VMs that are no more,
// such as after a reboot, and what an interrupted branch left.
func (s *Supervisor) SweepOverlays(used map[string]bool) error {
	if err := rundir.CheckData(s.cfg.Overlays); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.cfg.Overlays)
	if err != nil {
		return err
	}
	for _, en := range entries {
		if !overlayName.MatchString(en.Name()) || !en.Type().IsRegular() {
			s.cfg.Log.Warn("left alone: not a disk of a sandbox", "path", filepath.Join(s.cfg.Overlays, en.Name()))
			continue
		}
		if path := filepath.Join(s.cfg.Overlays, en.Name()); !used[path] {
			os.Remove(path)
			continue
		}
		vm, _, _ := strings.Cut(en.Name(), "-")
		s.noteVM(vm) // a sandbox that was rolled back lives in another directory than that
	}
	return nil
}
