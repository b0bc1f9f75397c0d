package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/sys/durable"
)

// A file of a snapshot that has not arrived whole is in the layer store, with an ID of its own (store.LazyDir). In its
// place the snapshot's folder has a mark with the ID. The pin of the file is named after the ID.
const (
	lateMark      = ".late-" // followed by the file's name
	latePinPrefix = "late."  // of the pin's name, followed by the ID
)

// Late adds a file that arrives later, as the file with the ID in the layer store. The caller keeps the collection from
// it until Late returns (store.Arriving).
func (d *Draft) Late(name string, bytes int64, id layer.ID) error {
	if !plainName(name) {
		return fmt.Errorf("create snapshot %s: %q is not a plain name", d.tag, name)
	}
	// SettleFile unpins a file without a mark, so the mark comes first.
	if err := durable.WriteFile(filepath.Join(d.dir, lateMark+name), []byte(id.String())); err != nil {
		return err
	}
	if err := d.store.layers.Pin(latePinPrefix+id.String(), id); err != nil {
		return err
	}
	d.late = append(d.late, File{Name: name, Bytes: bytes})
	return nil
}

// lateID returns the ID of a file that has not arrived whole.
func lateID(dir, name string) (layer.ID, error) {
	b, err := durable.ReadFile(filepath.Join(dir, lateMark+name), 256)
	if err != nil {
		return layer.ID{}, err
	}
	return layer.ParseID(string(b))
}

// openLate opens the file at path, or the served one if it has not arrived whole.
func openLate(path string, layers *store.Store) (*os.File, error) {
	f, err := durable.Open(path)
	if !errors.Is(err, fs.ErrNotExist) || layers == nil {
		return f, err
	}
	id, bad := lateID(filepath.Dir(path), filepath.Base(path))
	if bad != nil {
		return nil, err
	}
	served, bad := layers.Arriving().Open(id)
	if bad == nil {
		return served, nil
	}
	if f, err = durable.Open(path); err == nil { // it has been settled meanwhile
		return f, nil
	}
	return nil, bad
}

// lateThere reports whether the folder has a mark of a file that exists in the layer store.
func (s *Store) lateThere(dir, name string) bool {
	id, err := lateID(dir, name)
	return err == nil && s.layers.Arriving().Has(id)
}

// Absent returns the IDs of a snapshot's layers and files that have not arrived whole.
func (s *Store) Absent(e Entry) (ids []layer.ID) {
	if e.Manifest == nil {
		return nil
	}
	for _, id := range e.Manifest.LayerIDs() {
		if s.layers.Arriving().Has(id) {
			ids = append(ids, id)
		}
	}
	for _, f := range e.Manifest.Files {
		if id, err := lateID(s.Dir(e.Tag), f.Name); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// SettleFile gives a complete file to the snapshots that have its mark, and drops it from the layer store. It also
// drops a file without a mark. Files that are open stay as they are.
func (s *Store) SettleFile(id layer.ID, name string) error {
	marks, err := filepath.Glob(filepath.Join(s.dir, "*", lateMark+name))
	if err != nil {
		return err
	}
	hidden, err := filepath.Glob(filepath.Join(s.dir, ".*", lateMark+name))
	if err != nil {
		return err
	}
	marks = append(marks, hidden...)
	dir := filepath.Join(s.layers.Arriving().Dir(), id.String())
	marked := false
	for _, mark := range marks {
		b, err := durable.ReadFile(mark, 256)
		if err != nil || strings.TrimSpace(string(b)) != id.String() {
			continue
		}
		marked = true
		if !layer.PartialComplete(dir) {
			continue
		}
		if err := settle(filepath.Join(dir, layer.PartialData), mark, name); err != nil {
			return fmt.Errorf("settle %s: %w", name, err)
		}
	}
	if marked && !layer.PartialComplete(dir) {
		return nil
	}
	if err := s.layers.Unpin(latePinPrefix + id.String()); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if !marked {
		return nil // the collection takes it, unless a draft is about to mark it
	}
	return s.layers.Arriving().Drop(id)
}

// settle gives the data the file's name. A crash leaves the mark, and the next call goes on.
func settle(data, mark, name string) error {
	folder := filepath.Dir(mark)
	if err := os.Link(data, filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrExist) {
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if _, gone := os.Lstat(folder); gone != nil { // deleted meanwhile
			return nil
		}
		return err
	}
	if err := durable.SyncDir(folder); err != nil {
		return err
	}
	if err := os.Remove(mark); err != nil {
		return err
	}
	return durable.SyncDir(folder)
}
