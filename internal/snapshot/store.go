package snapshot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Prefixes of directories that are no snapshots: half-written and half-deleted
// ones. No tag begins with a dot.
const (
	draftPrefix   = ".new-"
	deletedPrefix = ".del-"
)

// Store is a directory of snapshots. Its methods are safe for concurrent use;
// one process at a time may have it open (the caller holds a lock).
type Store struct{ dir string }

// OpenStore makes the directory if needed and removes what an interrupted write
// or deletion left in it.
func OpenStore(dir string) (*Store, error) {
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
	return &Store{dir: dir}, nil
}

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
func (s *Store) Get(tag string) (Entry, error) {
	e := Entry{Tag: tag}
	if err := CheckTag(tag); err != nil {
		return e, err
	}
	if _, err := os.Stat(s.Dir(tag)); errors.Is(err, fs.ErrNotExist) {
		return e, fmt.Errorf("%w: %s", ErrNotFound, tag)
	}
	b, err := readCapped(filepath.Join(s.Dir(tag), ManifestFile), MaxManifestBytes)
	if err != nil {
		return e, damaged(tag, ManifestFile, err)
	}
	m, err := DecodeManifest(b)
	if err != nil {
		return e, fmt.Errorf("snapshot %s: %w", tag, err)
	}
	e.Manifest, e.ContentHash = m, contentHash(b)
	if m.Tag != tag {
		return e, fmt.Errorf("snapshot %s: %w: %s is of snapshot %s", tag, ErrNotRestorable, ManifestFile, m.Tag)
	}
	for _, f := range m.Files {
		st, err := os.Lstat(filepath.Join(s.Dir(tag), f.Name))
		if err == nil {
			err = checkFile(st, f)
		}
		if err != nil {
			return e, damaged(tag, f.Name, err)
		}
	}
	return e, nil
}

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

// Sizes returns the logical and the physical bytes of a snapshot's memory files.
func (s *Store) Sizes(m *Manifest) (logical, physical int64) {
	seen := map[string]bool{}
	for _, seg := range m.Memory {
		if seen[seg.File] {
			continue
		}
		seen[seg.File] = true
		if st, err := os.Stat(filepath.Join(s.Dir(m.Tag), seg.File)); err == nil {
			if sys, ok := st.Sys().(*syscall.Stat_t); ok {
				physical += sys.Blocks * 512 // stat(2): units of 512, whatever st_blksize says
			}
		}
	}
	return m.Shape.MemoryBytes(), physical
}

// HasDigests reports whether the content digests are written.
func (s *Store) HasDigests(tag string) bool {
	_, err := os.Stat(filepath.Join(s.Dir(tag), DigestFile))
	return err == nil
}

// Delete removes a snapshot. Descriptors and mappings of its files stay good.
func (s *Store) Delete(tag string) error {
	if err := CheckTag(tag); err != nil {
		return err
	}
	// The rename is what deletes; what the removal leaves is swept at the next open.
	gone, err := os.MkdirTemp(s.dir, deletedPrefix)
	if err != nil {
		return fmt.Errorf("delete snapshot %s: %w", tag, err)
	}
	defer os.RemoveAll(gone)
	if err := os.Rename(s.Dir(tag), filepath.Join(gone, tag)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s", ErrNotFound, tag)
		}
		return fmt.Errorf("delete snapshot %s: %w", tag, err)
	}
	return syncDir(s.dir)
}

func readCapped(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("is over %d bytes", limit)
	}
	return b, err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
