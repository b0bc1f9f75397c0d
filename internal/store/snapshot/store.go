package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Prefixes of directories that are not snapshots: half-written and half-deleted ones. No tag begins with a dot.
const (
	draftPrefix   = ".new-"
	deletedPrefix = ".del-"
)

// Store is a directory of snapshots. Their memory and disks are in a layer store. Its methods are safe for
// concurrent use. Only one process at a time may have it open (the caller holds a lock).
type Store struct {
	dir    string
	layers *store.Store
	// naming is held while a snapshot's folder loses its name or gets its digests. A file written to a folder
	// during its removal would remain.
	naming sync.Mutex
	// opening is called with the name of each file before it is opened, so that tests can replace the snapshot
	// then. Otherwise it is nil.
	opening func(name string)
}

// OpenStore opens the directory, and creates it if needed. It removes the remains of interrupted writes and
// deletions: folders, and pins on layers. The layer store's GC removes the layers.
func OpenStore(dir string, layers *store.Store) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open snapshot store: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open snapshot store: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), draftPrefix) || strings.HasPrefix(e.Name(), deletedPrefix) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return nil, fmt.Errorf("sweep snapshot store: %w", err)
			}
		}
	}
	s := &Store{dir: dir, layers: layers}
	if err := s.settlePins(); err != nil {
		return nil, fmt.Errorf("sweep snapshot store: %w", err)
	}
	return s, nil
}

// Layers returns the store of the snapshots' layers.
func (s *Store) Layers() *store.Store { return s.layers }

// Dir returns the directory of a tag. The tag must have passed CheckTag.
func (s *Store) Dir(tag string) string { return filepath.Join(s.dir, tag) }

// Entry describes one snapshot of the store.
type Entry struct {
	Tag         string
	Manifest    *Manifest // nil if the manifest is damaged
	ContentHash string
	Err         error // why it cannot be restored
	// Labels may be nil. LabelsErr is why they cannot be read.
	Labels    map[string]string
	LabelsErr error
}

// List returns all snapshots sorted by tag, restorable or not.
func (s *Store) List() ([]Entry, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var out []Entry
	for _, e := range entries {
		if !e.IsDir() || CheckTag(e.Name()) != nil {
			continue
		}
		en, err := s.Get(e.Name())
		if errors.Is(err, storeerr.ErrNotFound) {
			continue // deleted meanwhile
		}
		en.Err = err
		out = append(out, en)
	}
	return out, nil
}

// Get reads a snapshot's manifest and checks that its files exist with the listed sizes. On error, the entry has
// the fields that could be read.
func (s *Store) Get(tag string) (e Entry, err error) {
	e.Tag = tag
	err = s.steady(tag, func() error {
		e, err = s.get(tag)
		return err
	}, func() {})
	return e, err
}

// steady calls look. If the tag changed to another snapshot during the call, it calls drop to undo look, and
// tries again. So all files opened by look belong to one snapshot, and a missing file is really missing, not
// deleted with the previous snapshot. It holds no lock, so a replacement does not wait.
func (s *Store) steady(tag string, look func() error, drop func()) error {
	if err := CheckTag(tag); err != nil {
		return err
	}
	for {
		was, err := os.Open(s.Dir(tag)) // kept open; otherwise its inode could be reused
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("snapshot %s %w", tag, storeerr.ErrNotFound)
		}
		if err != nil {
			return fmt.Errorf("open snapshot %s: %w", tag, err)
		}
		found := look()
		same := s.named(was, tag)
		was.Close()
		if same {
			return found
		}
		drop()
	}
}

// named reports whether a folder still belongs to the tag.
func (s *Store) named(folder *os.File, tag string) bool {
	was, err := folder.Stat()
	if err != nil {
		return false
	}
	is, err := os.Stat(s.Dir(tag))
	return err == nil && os.SameFile(was, is)
}

func (s *Store) get(tag string) (Entry, error) { return s.read(s.Dir(tag), tag) }

// read reads the snapshot in a folder. If the tag is empty, it uses the manifest's.
func (s *Store) read(dir, tag string) (Entry, error) {
	e := Entry{Tag: tag}
	e.Labels, e.LabelsErr = readLabels(dir)
	s.tell(ManifestFile)
	b, err := durable.ReadFile(filepath.Join(dir, ManifestFile), MaxManifestBytes)
	if err != nil {
		return e, damaged(tag, ManifestFile, err)
	}
	m, err := DecodeManifest(b)
	if err != nil {
		return e, fmt.Errorf("snapshot %s: %w", tag, err)
	}
	e.Manifest, e.ContentHash = m, contentHash(b)
	if tag == "" {
		tag, e.Tag = m.Tag, m.Tag
	}
	if m.Tag != tag && renamed(dir, tag) {
		m.Tag = tag
	}
	if m.Tag != tag {
		return e, fmt.Errorf("snapshot %s: %w: %s is of snapshot %s", tag, storeerr.ErrNotRestorable, ManifestFile, m.Tag)
	}
	for _, f := range m.Files {
		st, err := os.Lstat(filepath.Join(dir, f.Name))
		if err == nil {
			err = checkFile(st, f)
		} else if errors.Is(err, fs.ErrNotExist) && s.lateThere(dir, f.Name) {
			err = nil
		}
		if err != nil {
			return e, damaged(tag, f.Name, err)
		}
	}
	for _, id := range m.LayerIDs() {
		if _, err := s.layers.Probe(id); errors.Is(err, store.ErrNotFound) {
			return e, damaged(tag, LayerFile(id), fs.ErrNotExist)
		} else if err != nil {
			return e, damaged(tag, LayerFile(id), err)
		}
	}
	return e, nil
}

// LayerFile returns a layer's name among the names of a snapshot's files.
func LayerFile(id layer.ID) string { return "layers/" + id.String() }

func checkFile(st fs.FileInfo, f File) error {
	switch {
	case !st.Mode().IsRegular():
		return errors.New("is not a regular file")
	case st.Size() != f.Bytes:
		return fmt.Errorf("has %d bytes, want %d", st.Size(), f.Bytes)
	}
	return nil
}

func damaged(tag, file string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("is missing")
	}
	return fmt.Errorf("snapshot %s: %w: file %s %w", tag, storeerr.ErrNotRestorable, file, err)
}

// HasDigests reports whether the content digests exist, including those of the layers. The layers' digests are
// written before the snapshot's, but a store may have been copied without them.
func (s *Store) HasDigests(e Entry) bool {
	if _, err := os.Stat(filepath.Join(s.Dir(e.Tag), DigestFile)); err != nil || e.Manifest == nil {
		return false
	}
	return !slices.ContainsFunc(e.Manifest.LayerIDs(), func(id layer.ID) bool { return !s.layers.Hashed(id) })
}

// Delete removes a snapshot. Descriptors and mappings of its files stay valid, and so do other snapshots with the
// same layers. Unused layers are removed at the layer store's next GC.
func (s *Store) Delete(tag string) error {
	if err := CheckTag(tag); err != nil {
		return err
	}
	// The rename is the deletion. If the removal fails, the next open removes the rest.
	var gone string
	defer func() { os.RemoveAll(gone) }() // no effect if the path is empty
	return s.delete(tag, func() (err error) {
		if gone, err = os.MkdirTemp(s.dir, deletedPrefix); err != nil {
			return err
		}
		if err := failpoint.At(failpoint.SnapshotPrefix + "delete.rename"); err != nil {
			return err
		}
		s.naming.Lock()
		defer s.naming.Unlock()
		return os.Rename(s.Dir(tag), filepath.Join(gone, tag))
	})
}

// delete calls away to take the tag from its folder, and then unpins its layers.
func (s *Store) delete(tag string, away func() error) error {
	// Reserve until the pin is gone: the pin is named after the tag, which another snapshot could take.
	unreserve, err := s.reserve(tag)
	if err != nil {
		return err
	}
	defer unreserve()
	err = away()
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("snapshot %s %w", tag, storeerr.ErrNotFound)
	}
	if err == nil {
		err = failpoint.At(failpoint.SnapshotPrefix + "delete.sync")
	}
	if err == nil {
		err = durable.SyncDir(s.dir)
	}
	if err != nil {
		return fmt.Errorf("delete snapshot %s: %w", tag, err)
	}
	return s.unpin(tag)
}

// reserve takes a tag briefly, so that no snapshot with the tag is begun.
func (s *Store) reserve(tag string) (free func(), err error) {
	dir := filepath.Join(s.dir, draftPrefix+tag)
	for range 50 { // Create also takes it briefly, to check whether it is taken
		if err = os.Mkdir(dir, 0o700); err == nil {
			return func() { os.Remove(dir) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("reserve tag %s: %w", tag, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil, fmt.Errorf("%w: %s is being written", storeerr.ErrExists, tag)
}
