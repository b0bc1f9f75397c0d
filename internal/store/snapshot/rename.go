package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/sys/durable"
)

// NamesFile is in the folder of a renamed snapshot. The manifest keeps the first tag, because the content hash
// covers it. A folder with another name than the manifest's tag is valid only if this file lists the name. So a
// folder copied by hand to another name is still detected.
const NamesFile = "names.json"

const (
	namesVersion  = 1
	maxNamesBytes = 4 << 10
)

type namesFile struct {
	Version int `json:"version"`
	// Tags are the tag before the last renaming, and after it. The folder has either: the renaming may have been cut.
	Tags []string `json:"tags"`
}

// DecodeNames reads the content of a NamesFile.
func DecodeNames(b []byte) ([]string, error) {
	var f namesFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("read names: %w", err)
	}
	if f.Version != namesVersion || len(f.Tags) != 2 {
		return nil, fmt.Errorf("read names: version %d with %d tags, want %d with 2", f.Version, len(f.Tags), namesVersion)
	}
	for _, tag := range f.Tags {
		if err := CheckTag(tag); err != nil {
			return nil, fmt.Errorf("read names: %w", err)
		}
	}
	return f.Tags, nil
}

// renamed reports whether the snapshot in a folder was renamed to a tag.
func renamed(dir, tag string) bool {
	b, err := durable.ReadFile(filepath.Join(dir, NamesFile), maxNamesBytes)
	if err != nil {
		return false
	}
	tags, err := DecodeNames(b)
	return err == nil && slices.Contains(tags, tag)
}

func writeNames(dir string, tags ...string) error {
	b, err := json.Marshal(namesFile{namesVersion, tags})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, NamesFile)
	if err = failpoint.At(failpoint.SnapshotPrefix + "rename.names"); err == nil {
		err = durable.Rewrite(path, append(b, '\n'))
	}
	if err != nil {
		os.Remove(path + ".new")
	}
	return err
}

// Rename gives a snapshot another tag. Its content hash stays, and so do its labels, its digests, and descriptors of
// its files. A crash at any moment leaves the snapshot under exactly one of both tags.
func Rename(s *Store, tag, to string) error {
	for _, t := range []string{tag, to} {
		if err := CheckTag(t); err != nil {
			return err
		}
	}
	if tag == to {
		return fmt.Errorf("%w: %s", storeerr.ErrExists, to)
	}
	for _, t := range []string{tag, to} { // until both pins are settled: they are named after the tags
		free, err := s.reserve(t)
		if err != nil {
			return err
		}
		defer free()
	}
	if _, err := os.Lstat(s.Dir(to)); err == nil {
		return fmt.Errorf("%w: %s", storeerr.ErrExists, to) // before the pin, which would replace the other snapshot's
	}
	e, err := s.get(tag)
	if errors.Is(err, storeerr.ErrNotRestorable) {
		if _, gone := os.Lstat(s.Dir(tag)); errors.Is(gone, fs.ErrNotExist) {
			return fmt.Errorf("snapshot %s %w", tag, storeerr.ErrNotFound)
		}
	}
	if err != nil {
		return err
	}
	if err := rename(s, e, to); err != nil {
		return fmt.Errorf("rename snapshot %s: %w", tag, err)
	}
	return s.unpin(tag)
}

// rename pins the layers for the new tag, and then moves the folder, which is the commit point. OpenStore removes the
// pin of the tag without a folder.
func rename(s *Store, e Entry, to string) error {
	if err := s.pin(to, e.Manifest); err != nil {
		return err
	}
	err := failpoint.At(failpoint.SnapshotPrefix + "rename.pinned")
	if err == nil {
		err = moveFolder(s, e.Tag, to)
	}
	if err != nil {
		return errors.Join(err, s.unpin(to))
	}
	// The snapshot has its new tag now, even if the name is not durable yet. Until then both pins stay.
	if err := failpoint.At(failpoint.SnapshotPrefix + "rename.sync"); err != nil {
		return errors.Join(err, rollBack(s, e.Tag, to))
	}
	if err := durable.SyncDir(s.dir); err != nil {
		return errors.Join(err, rollBack(s, e.Tag, to))
	}
	return nil
}

func moveFolder(s *Store, tag, to string) error {
	s.naming.Lock()
	defer s.naming.Unlock()
	if err := writeNames(s.Dir(tag), tag, to); err != nil {
		return err
	}
	if err := failpoint.At(failpoint.SnapshotPrefix + "rename.move"); err != nil {
		return err
	}
	return durable.RenameNew(s.Dir(tag), s.Dir(to))
}

// rollBack returns a snapshot to its old tag after its new name could not be made durable.
func rollBack(s *Store, tag, to string) error {
	s.naming.Lock()
	defer s.naming.Unlock()
	if err := durable.RenameNew(s.Dir(to), s.Dir(tag)); err != nil {
		return err
	}
	return s.unpin(to)
}
