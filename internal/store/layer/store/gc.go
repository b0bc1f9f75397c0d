package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Report is what a collection removed, or would remove.
type Report struct {
	Layers []layer.ID // in the order of their names
	Temps  int        // leftovers: of dead writers, and digests without a layer
	Busy   int        // layers that no pin names, and that somebody still has open
	Bytes  int64      // of disk space, all together
}

// GC removes the layers that no pin names and nobody has open, and what dead
// writers left. With dryRun it removes nothing and only reports.
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
	doomed []string // in tmp; their names are random and never used again
}

// collect decides under the store's lock and takes the names away. The
// removal itself, which takes long for large files, is left for afterwards.
func (g *gc) collect() error {
	unlock, err := g.s.lock()
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
	return g.layersLocked(held)
}

// pinnedLocked are the layers that pins name. The pins are made durable first:
// a release that a power cut takes back must not find its layers gone.
func (g *gc) pinnedLocked() (map[layer.ID]bool, error) {
	if err := durable.SyncDir(g.s.path(pinsDir)); err != nil {
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

// tempsLocked finds what nobody works on in tmp: the files of dead processes.
func (g *gc) tempsLocked() error {
	entries, err := os.ReadDir(g.s.path(tempDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := g.s.path(tempDir, e.Name())
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
	entries, err := os.ReadDir(g.s.path(layersDir)) // sorted: a layer comes before its digests
	if err != nil {
		return err
	}
	var kept, gone layer.ID // the last one of each
	for _, e := range entries {
		name, isDigests := strings.CutSuffix(e.Name(), digestsSuffix)
		id, err := layer.ParseID(name)
		if err != nil || !e.Type().IsRegular() {
			continue // not ours
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

// takeUnused takes a layer, or its digests, unless somebody uses the layer.
func (g *gc) takeUnused(name string, id layer.ID, isDigests bool) (bool, error) {
	if isDigests { // of a layer that is gone, or goes
		return g.take(name)
	}
	use, err := g.s.claimUse(id)
	if use == nil || err != nil {
		return false, err
	}
	defer use.Close()
	return g.take(name)
}

// take moves a file that nobody has open out of layers, to be removed.
func (g *gc) take(name string) (bool, error) {
	path, to := g.s.path(layersDir, name), g.s.path(tempDir, layer.NewID().String())
	f, size, err := claim(path)
	if f == nil || err != nil {
		return false, err
	}
	defer f.Close() // after the rename: who waits for the lock then looks at the name
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
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // another GC was here
			return err
		}
	}
	return nil
}

// claim locks a file that nobody uses; nil if somebody does. Closing it frees it.
func claim(path string) (f *os.File, size int64, err error) {
	f, err = durable.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		size, err = diskBytes(f)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = nil
		}
		return nil, 0, err
	}
	return f, size, nil
}

// diskBytes is what a file takes on the disk.
func diskBytes(f *os.File) (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return blocksOf(st), nil
}

func blocksOf(st fs.FileInfo) int64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Blocks * 512 // stat(2): units of 512, whatever st_blksize says
	}
	return st.Size()
}
