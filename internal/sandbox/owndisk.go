package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// openOwn completes disks for a VM: those that are written get an empty own
// file. The caller closes it with close once the VMM has it; discard removes it.
func (e *Engine) openOwn(m *machine, disks []vmmctl.Disk) (_ []vmmctl.Disk, close func(), err error) {
	var files []*os.File
	close = func() {
		for _, f := range files {
			f.Close()
		}
	}
	out := make([]vmmctl.Disk, len(disks))
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
		files, m.own, out[i].Own = append(files, f), append(m.own, path), f
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

// writtenDisk is a disk whose base is a whole file, without its own file yet.
func writtenDisk(base *os.File) (vmmctl.Disk, error) {
	st, err := base.Stat()
	if err != nil {
		return vmmctl.Disk{}, err
	}
	return vmmctl.Disk{Size: st.Size(), Base: []vmmctl.Segment{{File: base, Length: st.Size()}}}, nil
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

func checkUpper(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = packedDisk(f)
	return err
}

// removeVM removes what a VM that has ended leaves.
func removeVM(dir string, own []string) {
	for _, path := range own { // first: the directory's presence says that they may be needed
		os.Remove(path)
	}
	os.RemoveAll(dir)
}

// sweepOwn removes the own files of VMs that are no more, such as after a
// reboot. All sandboxes are adopted by then, and no VM is being made yet.
func (e *Engine) sweepOwn() error {
	if err := os.MkdirAll(e.ownDir(), 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(e.ownDir())
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, b := range e.boxes {
		for _, path := range b.own {
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
