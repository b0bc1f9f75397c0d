package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
	"github.com/forkd/forkd/internal/sys/filelock"
)

// Report lists the files that a collection removed, or would remove.
type Report struct {
	Layers []layer.ID // sorted by name
	Temps  int        // files of dead writers, and digests without a layer
	Busy   int        // unpinned layers that a process still has open
	Bytes  int64      // total disk space
}

// GC removes the layers that are neither pinned nor open, and the files of dead writers. With dryRun it only
// reports them.
func (s *Store) GC(dryRun bool) (Report, error) {
	g := gc{s: s, dryRun: dryRun}
	err := g.collect()
	if err == nil {
		err = g.remove()
	}
	if err != nil {
		return g.report, fmt.Errorf("collect layers: %w", err)
	}
	return g.report, nil
}

// gc is one collection.
type gc struct {
	s      *Store
	dryRun bool
	report Report
	doomed []string // in tmp; their names are random and not reused
}

// collect chooses the files and renames them under the store's lock. Removing large files takes long and is done
// afterwards.
func (g *gc) collect() error {
	unlock, err := g.s.folder.lock()
	if err != nil {
		return err
	}
	defer unlock()
	held, err := g.pinnedLocked()
	if err != nil {
		return err
	}
	if err := g.tempsLocked(); err != nil {
		return err
	}
	if err := g.layersLocked(held); err != nil {
		return err
	}
	return g.lazyLocked(held)
}

// pinnedLocked returns the pinned layers. It first makes the directory of pins durable: if a power cut undoes an
// unpin, the layers must still exist.
func (g *gc) pinnedLocked() (map[layer.ID]bool, error) {
	if err := durable.SyncDir(g.s.folder.path(pinsDir)); err != nil {
		return nil, err
	}
	pins, err := g.s.Pins()
	if err != nil {
		return nil, err
	}
	held := map[layer.ID]bool{}
	for _, ids := range pins {
		for _, id := range ids {
			held[id] = true
		}
	}
	return held, nil
}

// tempsLocked finds the files of dead processes in tmp.
func (g *gc) tempsLocked() error {
	entries, err := os.ReadDir(g.s.folder.path(tempDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := g.s.folder.path(tempDir, e.Name())
		f, size, err := claim(path)
		if err != nil {
			return err
		}
		if f != nil {
			f.Close()
			g.doomed = append(g.doomed, path)
			g.report.Temps++
			g.report.Bytes += size
		}
	}
	return nil
}

func (g *gc) layersLocked(held map[layer.ID]bool) error {
	entries, err := os.ReadDir(g.s.folder.path(layersDir)) // sorted: a layer precedes its digests
	if err != nil {
		return err
	}
	var kept, gone layer.ID // last kept and last removed layer
	for _, e := range entries {
		name, isDigests := strings.CutSuffix(e.Name(), digestsSuffix)
		id, err := layer.ParseID(name)
		if err != nil || !e.Type().IsRegular() {
			continue // not a file of the store
		}
		if held[id] || id == kept {
			continue
		}
		taken, err := g.takeUnused(e.Name(), id, isDigests)
		switch {
		case err != nil:
			return err
		case !taken:
			kept = id
			if !isDigests {
				g.report.Busy++
			}
		case !isDigests:
			gone = id
			g.report.Layers = append(g.report.Layers, id)
		case id != gone:
			g.report.Temps++
		}
	}
	return nil
}

// takeUnused takes a layer, or its digests, unless the layer is in use.
func (g *gc) takeUnused(name string, id layer.ID, isDigests bool) (bool, error) {
	if isDigests { // its layer is gone, or about to go
		return g.take(name)
	}
	use, err := g.s.folder.claimUse(id)
	if use == nil || err != nil {
		return false, err
	}
	defer use.Close()
	return g.take(name)
}

// take moves a file that is not open out of the layers directory, for removal.
func (g *gc) take(name string) (bool, error) {
	path, to := g.s.folder.path(layersDir, name), g.s.folder.path(tempDir, layer.NewID().String())
	f, size, err := claim(path)
	if f == nil || err != nil {
		return false, err
	}
	defer f.Close() // after the rename: a process that waits for the lock then checks the name
	if !g.dryRun {
		if err := failpoint.At(failpoint.LayerPrefix + "gc.rename"); err != nil {
			return false, err
		}
		if err := os.Rename(path, to); err != nil {
			return false, err
		}
		g.doomed = append(g.doomed, to)
	}
	g.report.Bytes += size
	return true, nil
}

func (g *gc) remove() error {
	if g.dryRun {
		return nil
	}
	for _, path := range g.doomed {
		if err := failpoint.At(failpoint.LayerPrefix + "gc.remove"); err != nil {
			return err
		}
		if err := os.RemoveAll(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // another GC may have removed it
			return err
		}
	}
	return nil
}

// claim locks an unused file; it returns nil if the file is in use. Closing the file releases it.
func claim(path string) (f *os.File, size int64, err error) {
	f, err = durable.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	err = filelock.Try(f)
	if err == nil {
		size, err = diskBytes(f)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, filelock.ErrHeld) {
			err = nil
		}
		return nil, 0, err
	}
	return f, size, nil
}

// diskBytes returns the size of a file on disk.
func diskBytes(f *os.File) (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return blocksOf(st), nil
}

func blocksOf(st fs.FileInfo) int64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Blocks * 512 // stat(2): in units of 512 bytes, regardless of st_blksize
	}
	return st.Size()
}
