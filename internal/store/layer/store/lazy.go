package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
)

// ErrNotServed: the layer has not arrived whole, and the process that fetches the rest does not serve it.
var ErrNotServed = errors.New("the rest of it is not being fetched")

func (d *folder) lazyPath(id layer.ID) string { return d.path(lazyDir, id.String()) }

// Arriving are a store's files that have not arrived whole (package partial). Such a file has the ID of its layer, or
// an ID of its own, and is pinned and collected like a layer.
type Arriving struct{ folder *folder }

// Arriving returns the files that have not arrived whole.
func (s *Store) Arriving() Arriving { return Arriving{&s.folder} }

// Dir returns the folder of the files.
func (a Arriving) Dir() string { return a.folder.path(lazyDir) }

// ServedDir returns the folder where the files are served, by ID. Reads of absent content block.
func (a Arriving) ServedDir() string { return a.folder.path(mountDir) }

// Has reports whether there is a file with the ID that has not arrived whole.
func (a Arriving) Has(id layer.ID) bool { return a.folder.lazy(id) }

// Open opens a file that has not arrived whole.
func (a Arriving) Open(id layer.ID) (*os.File, error) { return a.folder.openServed(id) }

// Settle makes a layer of a complete file. The file keeps its content for those who have it open.
func (a Arriving) Settle(id layer.ID) error {
	if err := a.folder.settle(id); err != nil {
		return fmt.Errorf("settle layer %s: %w", id, err)
	}
	return nil
}

// Drop removes a file that has not arrived whole, or is not needed any more.
func (a Arriving) Drop(id layer.ID) error {
	unlock, err := a.folder.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return a.folder.dropLazyLocked(id)
}

// Use keeps the collection from a file that has not arrived whole, until the returned file is closed.
func (a Arriving) Use(id layer.ID) (*os.File, error) { return a.folder.beginUse(id) }

func (d *folder) lazy(id layer.ID) bool {
	if _, err := os.Lstat(d.layerPath(id)); err == nil {
		return false
	}
	_, err := os.Lstat(d.lazyPath(id))
	return err == nil
}

// exists reports whether there is a layer, whole or not, or another file with the ID.
func (d *folder) exists(id layer.ID) bool {
	if _, err := os.Lstat(d.layerPath(id)); err == nil {
		return true
	}
	return d.lazy(id)
}

// openFile opens the file of a layer, or the served one if the layer has not arrived whole.
func (d *folder) openFile(id layer.ID) (*os.File, error) {
	f, err := durable.Open(d.layerPath(id))
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if !d.lazy(id) {
		return nil, err
	}
	return d.openServed(id)
}

func (d *folder) openServed(id layer.ID) (*os.File, error) {
	f, err := durable.Open(d.path(mountDir, id.String()))
	if err == nil {
		return f, nil
	}
	if whole, err := durable.Open(d.layerPath(id)); err == nil { // it has arrived meanwhile
		return whole, nil
	}
	return nil, fmt.Errorf("%w: %.200s", ErrNotServed, err.Error())
}

func (d *folder) settle(id layer.ID) error {
	dir := d.lazyPath(id)
	if !layer.PartialComplete(dir) {
		return errors.New("it has not arrived whole")
	}
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	// A crash after the rename leaves a folder without data, which is removed here or by the collection.
	err = rename("settle.rename", filepath.Join(dir, layer.PartialData), d.layerPath(id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := failpoint.At(failpoint.LayerPrefix + "settle.sync"); err != nil {
		return err
	}
	if err := durable.SyncDir(d.path(layersDir)); err != nil {
		return err
	}
	return d.dropLazyLocked(id)
}

// dropLazyLocked renames the folder first, so that no part of it is ever taken for the whole.
func (d *folder) dropLazyLocked(id layer.ID) error {
	to := d.path(tempDir, layer.NewID().String())
	if err := os.Rename(d.lazyPath(id), to); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return os.RemoveAll(to)
}

// lazyLocked takes the unused folders of files that have not arrived whole.
func (g *gc) lazyLocked(held map[layer.ID]bool) error {
	entries, err := os.ReadDir(g.s.folder.path(lazyDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		id, bad := layer.ParseID(e.Name())
		if bad != nil || held[id] {
			continue
		}
		if err := g.takeLazy(id); err != nil {
			return err
		}
	}
	return nil
}

func (g *gc) takeLazy(id layer.ID) error {
	use, err := g.s.folder.claimUse(id)
	if use == nil || err != nil {
		return err
	}
	defer use.Close()
	if n, err := g.s.Bytes(id); err == nil {
		g.report.Bytes += n
	}
	g.report.Layers = append(g.report.Layers, id)
	if g.dryRun {
		return nil
	}
	to := g.s.folder.path(tempDir, layer.NewID().String())
	if err := os.Rename(g.s.folder.lazyPath(id), to); err != nil {
		return err
	}
	g.doomed = append(g.doomed, to)
	return nil
}
