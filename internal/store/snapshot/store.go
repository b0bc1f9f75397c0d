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
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Prefixes of directories that are no snapshots: half-written and half-deleted
// ones. No tag begins with a dot.
const (
	draftPrefix   = ".new-"
	deletedPrefix = ".del-"
)

// Store is a directory of snapshots, whose memory and disks are in a store of
// layers. Its methods are safe for concurrent use; one process at a time may have
// it open (the caller holds a lock).
type Store struct {
	dir    string
	layers *store.Store
	// naming is held while a snapshot's folder loses its name, or gets its digests:
	// what is written into a folder that is being removed would stay.
	naming sync.Mutex
	// opening is told of each file before it is opened, for tests to replace the
	// snapshot there; else nil.
	opening func(name string)
}

// OpenStore makes the directory if needed and removes what an interrupted write
// or deletion left in it: folders, and pins on layers. The layers themselves are
// for the layer store's GC.
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

// Layers is the store of the snapshots' layers.
func (s *Store) Layers() *store.Store { return s.layers }

// Dir is the directory of a tag, which must have passed CheckTag.
func (s *Store) Dir(tag string) string { return filepath.Join(s.dir, tag) }

// Entry is one snapshot as the store sees it.
type Entry struct {
	Tag         string
	Manifest    *Manifest // nil when Err is about the manifest
	ContentHash string
	Err         error // why it cannot be restored
}

// List returns every snapshot, by tag, restorable or not.
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
		if errors.Is(err, ErrNotFound) {
			continue // deleted meanwhile
		}
		en.Err = err
		out = append(out, en)
	}
	return out, nil
}

// Get reads a snapshot's manifest and checks that its files are there with the
// sizes it names. The entry is filled as far as it could be read.
func (s *Store) Get(tag string) (e Entry, err error) {
	e.Tag = tag
	err = s.steady(tag, func() error {
		e, err = s.get(tag)
		return err
	}, func() {})
	return e, err
}

// steady calls look, and again when the tag was another snapshot at its end than
// at its beginning, after drop has undone what it did: what look opens by name is
// then of one snapshot, and a file that it does not find is missing and not just
// gone with the snapshot that was. No lock is held, so a replacement waits for nobody.
func (s *Store) steady(tag string, look func() error, drop func()) error {
	if err := CheckTag(tag); err != nil {
		return err
	}
	for {
		was, err := os.Open(s.Dir(tag)) // kept open: else its inode could become another's
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("snapshot %s %w", tag, ErrNotFound)
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

// named reports whether a folder is still the tag's.
func (s *Store) named(folder *os.File, tag string) bool {
	was, err := folder.Stat()
	if err != nil {
		return false
	}
	is, err := os.Stat(s.Dir(tag))
	return err == nil && os.SameFile(was, is)
}

func (s *Store) get(tag string) (Entry, error) { return s.read(s.Dir(tag), tag) }

// read reads the snapshot in a folder. Without a tag it is that of the manifest.
func (s *Store) read(dir, tag string) (Entry, error) {
	e := Entry{Tag: tag}
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
	if m.Tag != tag {
		return e, fmt.Errorf("snapshot %s: %w: %s is of snapshot %s", tag, ErrNotRestorable, ManifestFile, m.Tag)
	}
	for _, f := range m.Files {
		st, err := os.Lstat(filepath.Join(dir, f.Name))
		if err == nil {
			err = checkFile(st, f)
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

// LayerFile is how a layer's file is called where files of snapshots are named.
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
	return fmt.Errorf("snapshot %s: %w: file %s %w", tag, ErrNotRestorable, file, err)
}

// HasDigests reports whether the content digests are written, those of the layers too. They are
// written before the snapshot's, but a store may have been copied without them.
func (s *Store) HasDigests(e Entry) bool {
	if _, err := os.Stat(filepath.Join(s.Dir(e.Tag), DigestFile)); err != nil || e.Manifest == nil {
		return false
	}
	return !slices.ContainsFunc(e.Manifest.LayerIDs(), func(id layer.ID) bool { return !s.layers.Hashed(id) })
}

// Delete removes a snapshot. Descriptors and mappings of its files stay good, and
// so do other snapshots that hold the same layers; those that nobody needs go at
// the layer store's next GC.
func (s *Store) Delete(tag string) error {
	if err := CheckTag(tag); err != nil {
		return err
	}
	// The rename is what deletes; what the removal leaves is swept at the next open.
	var gone string
	defer func() { os.RemoveAll(gone) }() // of nothing it does nothing
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

// delete has away take the tag from its folder, and then unpins its layers.
func (s *Store) delete(tag string, away func() error) error {
	// Until the pin is gone too: it is named after the tag, which another snapshot could take.
	unreserve, err := s.reserve(tag)
	if err != nil {
		return err
	}
	defer unreserve()
	err = away()
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("snapshot %s %w", tag, ErrNotFound)
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

// reserve takes a tag for a moment, so that no snapshot of it is begun.
func (s *Store) reserve(tag string) (free func(), err error) {
	dir := filepath.Join(s.dir, draftPrefix+tag)
	for range 50 { // Create takes it for a moment too, to find that it is taken
		if err = os.Mkdir(dir, 0o700); err == nil {
			return func() { os.Remove(dir) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("reserve tag %s: %w", tag, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil, fmt.Errorf("%w: %s is being written", ErrExists, tag)
}
