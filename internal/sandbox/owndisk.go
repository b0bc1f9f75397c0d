package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/forkd/forkd/internal/layer"
	"github.com/forkd/forkd/internal/packdisk"
	"github.com/forkd/forkd/internal/vmmctl"
)

// What a VM writes to a disk goes to an own file (package cowdisk). These files
// lie in the store: the run directory is memory. Their names begin with that of
// the run directory in which the VM was made, and a sandbox's journal lists
// them: what no journal lists belongs to nobody.

func (e *Engine) ownDir() string { return filepath.Join(e.cfg.StoreDir, "own") }

func ownName(vmDir string, disk int) string {
	return fmt.Sprintf("%s-disk%d", filepath.Base(vmDir), disk)
}

// diskLine is what a VM's writable disk is made of, from below: layers, own files
// of before, and the one that is written to. The journal has it.
type diskLine struct {
	Disk int        `json:"disk"`           // among the VM's disks
	Base []layer.ID `json:"base,omitempty"` // base first; empty for one that lies over an image's packed disk
	// Spent are paths of own files that a branch has frozen and that are no layer yet; at
	// most one, but for a branch that has failed just now.
	Spent []string `json:"spent,omitempty"`
	Own   string   `json:"own"` // path
	// Next is the path of a file that a branch has handed over as the next own file.
	// Whether the disk goes on in it, the VMM's count of Rotations tells.
	Next      string `json:"next,omitempty"`
	Rotations int    `json:"rotations,omitempty"` // that this record knows of
}

// ownDisks are the lines of a VM's writable disks, in the disks' order. The
// machine and its sandbox share them.
type ownDisks struct {
	mu    sync.Mutex
	lines []diskLine
	held  bool // there is a hold of the VM's on layers
}

// list is a copy of the lines.
func (o *ownDisks) list() []diskLine {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := slices.Clone(o.lines)
	for i := range out {
		out[i].Spent = slices.Clone(out[i].Spent)
	}
	return out
}

func (o *ownDisks) set(lines []diskLine) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines = lines
}

// paths are all files of the disks.
func (o *ownDisks) paths() []string {
	var all []string
	for _, l := range o.list() {
		all = append(append(all, l.Spent...), l.Own)
		if l.Next != "" {
			all = append(all, l.Next)
		}
	}
	return all
}

func (o *ownDisks) setHeld() (before bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, o.held = o.held, true
	return before
}

func (o *ownDisks) isHeld() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.held
}

// openOwn completes disks for a VM: those that are written get an empty own
// file over bases, in their order. The caller closes it with close once the VMM has
// it; discard removes it.
func (e *Engine) openOwn(m *machine, disks []vmmctl.Disk, bases [][]layer.ID) (_ []vmmctl.Disk, close func(), err error) {
	var files []*os.File
	close = func() {
		for _, f := range files {
			f.Close()
		}
	}
	out := make([]vmmctl.Disk, len(disks))
	var lines []diskLine
	for i, d := range disks {
		if out[i] = d; d.File != nil {
			continue
		}
		path := filepath.Join(e.ownDir(), ownName(m.dir, i))
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			close()
			return nil, nil, ownError(err)
		}
		line := diskLine{Disk: i, Own: path}
		if len(lines) < len(bases) {
			line.Base = bases[len(lines)]
		}
		files, out[i].Own, lines = append(files, f), f, append(lines, line)
		m.disks.set(lines)
	}
	return out, close, nil
}

func ownError(err error) error {
	err = fmt.Errorf("make the file of a sandbox's disk: %w", err)
	if isNoSpace(err) {
		return problem(ErrNoSpace, "free some space in the store (kill sandboxes, delete snapshots or images) and try again", "%w", err)
	}
	return err
}

// packedDisk is a disk whose base is an image's packed one.
func packedDisk(base *os.File) (vmmctl.Disk, error) {
	size, runs, err := packdisk.Read(base)
	if err != nil {
		return vmmctl.Disk{}, problem(ErrConflict, "remove the image and build it again", "%s: %w", base.Name(), err)
	}
	d := vmmctl.Disk{Size: size}
	for _, r := range runs {
		d.Base = append(d.Base, vmmctl.Segment{File: base, FileOffset: r.FileOffset, Offset: r.Offset, Length: r.Length})
	}
	return d, nil
}

// packedSize is the size of the disk that a packed file holds.
func packedSize(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	d, err := packedDisk(f)
	return d.Size, err
}

// removeVM removes what a VM that has ended leaves.
func removeVM(dir string, own []string) {
	for _, path := range own { // first: the directory's presence says that they may be needed
		os.Remove(path)
	}
	os.RemoveAll(dir)
}

// sweepOwn removes the own files that no sandbox names: of VMs that are no more,
// such as after a reboot, and what an interrupted branch left.
func (e *Engine) sweepOwn() error {
	if err := os.MkdirAll(e.ownDir(), 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(e.ownDir())
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, b := range e.boxes { // nobody else is here yet
		for _, path := range b.disks.paths() {
			used[path] = true
		}
	}
	for _, en := range entries {
		if path := filepath.Join(e.ownDir(), en.Name()); !used[path] {
			os.Remove(path)
			continue
		}
		vm, _, _ := strings.Cut(en.Name(), "-")
		e.noteVM(vm) // a sandbox that was rolled back lives in another directory than that
	}
	return nil
}
