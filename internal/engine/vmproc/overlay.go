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

// A VM's writes to a disk go to an overlay file (package overlay). Overlay files are in the store,
// since the run directory is in memory. Their names begin with the name of the run directory in
// which the VM was made, and a sandbox's journal lists them. A file not listed in any journal has
// no owner.

func overlayFile(vmDir string, disk int) string {
	return fmt.Sprintf("%s-disk%d", filepath.Base(vmDir), disk)
}

// NewOverlay makes another empty overlay file for a disk.
func (m *VM) NewOverlay(disk int) (*os.File, error) {
	f, err := os.CreateTemp(m.sup.cfg.Overlays, overlayFile(m.Dir, disk)+"-*")
	if err != nil {
		return nil, overlayError(err)
	}
	return f, nil
}

// Disk describes a VM's writable disk, bottom up: layers, frozen overlays, and the overlay being
// written to. It is stored in the journal.
type Disk struct {
	Index   int        `json:"disk"`              // among the VM's disks
	Backing []layer.ID `json:"backing,omitempty"` // base first; empty if it is based on an image's empty disk
	// Frozen lists the paths of overlays frozen by a branch that are not layers yet. There is at
	// most one, except right after a failed branch.
	Frozen  []string `json:"frozen,omitempty"`
	Overlay string   `json:"overlay"` // path; empty if its sandbox is paused without its memory
	// Next is the path of a file a branch has passed to the VMM as the next overlay. The VMM's
	// generation count shows whether it has switched to the file.
	Next       string `json:"next,omitempty"`
	Generation int    `json:"generation,omitempty"` // as of this record
	// Volume is the id of the volume that the files belong to. They stay when the sandbox ends.
	Volume string `json:"volume,omitempty"`
}

// Top makes the overlay file of a disk whose files belong to a volume.
type Top struct {
	Volume string                   // id of the volume
	Make   func() (*os.File, error) // makes an empty file
}

// Disks holds a VM's writable disks, in order. The VM and its sandbox share them.
type Disks struct {
	mu     sync.Mutex // guards the fields below; taken last
	disks  []Disk
	pinned bool // the sandbox has its own pin on layers
}

// NewDisks returns the disks of a journal.
func NewDisks(disks []Disk) *Disks { return &Disks{disks: disks} }

// List returns a copy of the disks.
func (o *Disks) List() []Disk {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := slices.Clone(o.disks)
	for i := range out {
		out[i].Frozen = slices.Clone(out[i].Frozen)
	}
	return out
}

// Set replaces the disks.
func (o *Disks) Set(disks []Disk) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.disks = disks
}

// Paths returns all files of the disks, without those of volumes.
func (o *Disks) Paths() []string {
	var all []string
	for _, d := range o.List() {
		if d.Volume != "" {
			continue
		}
		all = append(all, d.Frozen...)
		for _, path := range []string{d.Overlay, d.Next} {
			if path != "" {
				all = append(all, path)
			}
		}
	}
	return all
}

// SetPinned records that the sandbox has a pin on layers.
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

// OpenOverlays completes disks for a VM: each writable one gets an empty overlay file over its
// backing layers, in order. The caller calls close to close the files once the VMM has them.
// Discard removes them.
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
		f, volume, err := m.makeOverlay(i)
		if err != nil {
			close()
			return nil, nil, overlayError(err)
		}
		own := Disk{Index: i, Overlay: f.Name(), Volume: volume}
		if len(made) < len(backing) {
			own.Backing = backing[len(made)]
		}
		files, out[i].Overlay, made = append(files, f), f, append(made, own)
		out[i].Reserve, out[i].Limit = m.sup.cfg.DiskReserve, m.diskLimit
		m.Disks.Set(made)
	}
	return out, close, nil
}

// makeOverlay makes the first overlay file of a disk.
func (m *VM) makeOverlay(disk int) (f *os.File, volume string, err error) {
	if top, ok := m.Tops[disk]; ok {
		f, err = top.Make()
		return f, top.Volume, err
	}
	path := filepath.Join(m.sup.cfg.Overlays, overlayFile(m.Dir, disk))
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	return f, "", err
}

// AddClone adds a disk with the content of a volume, over layers and immutable overlay files, of which the
// VM gets its own names. The caller closes the new overlay file.
func (m *VM) AddClone(disk int, backing []layer.ID, files []string) (d Disk, top *os.File, err error) {
	d = Disk{Index: disk, Backing: backing}
	defer func() {
		if err == nil {
			m.Disks.Set(append(m.Disks.List(), d))
			return
		}
		for _, path := range append(d.Frozen, d.Overlay) {
			os.Remove(path)
		}
	}()
	for i, path := range files {
		to := filepath.Join(m.sup.cfg.Overlays, fmt.Sprintf("%s-%d", overlayFile(m.Dir, disk), i))
		if err := os.Link(path, to); err != nil {
			return d, nil, overlayError(err)
		}
		d.Frozen = append(d.Frozen, to)
	}
	top, _, err = m.makeOverlay(disk)
	if err != nil {
		return d, nil, overlayError(err)
	}
	d.Overlay = top.Name()
	return d, top, nil
}

// DiskBounds returns how many bytes a disk leaves free, and the size limit of its overlay file.
func (m *VM) DiskBounds() (reserve, limit int64) { return m.sup.cfg.DiskReserve, m.diskLimit }

func overlayError(err error) error {
	err = fmt.Errorf("make the file of a sandbox's disk: %w", err)
	if sandbox.IsNoSpace(err) {
		return sandbox.Errorf(sandbox.ErrNoSpace, sandbox.ReasonOverlayNoRoom, "%w", err)
	}
	return err
}

// Remove removes the files of an ended VM.
func (s *Supervisor) Remove(dir string, overlays []string) {
	for _, path := range overlays { // overlays first: while the directory exists they may be needed
		os.Remove(path)
	}
	s.removeDir(dir)
}

// SweepOverlays removes unused overlay files: files of ended VMs, for instance after a reboot, and
// files left by an interrupted branch.
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
		s.noteVM(vm) // a sandbox that was rolled back is in another directory
	}
	return nil
}
