package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/sys/durable"
)

// A snapshot that is deleted while sandboxes run from it only loses its tag. Its content stays in a folder named
// by its content hash, with its own pin, until the caller that retired it drops it. A branch of such a sandbox
// needs all of the content.

const (
	retiredPrefix    = ".retired-" // followed by the content hash without "sha256:"
	retiredPinPrefix = "retired."  // of the pin's name, followed by the same
	hashPrefix       = "sha256:"
)

// retiredName returns the content hash as part of a name; empty if it is invalid.
func retiredName(hash string) string {
	hex, ok := strings.CutPrefix(hash, hashPrefix)
	if !ok || len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" {
		return ""
	}
	return hex
}

func (s *Store) retiredDir(hash string) string {
	return filepath.Join(s.dir, retiredPrefix+retiredName(hash))
}

// Retire removes a snapshot's tag, like Delete, but keeps its content. OpenRetired finds it by its content hash
// until Drop. The hash must match the snapshot.
func (s *Store) Retire(tag, hash string) error {
	if err := CheckTag(tag); err != nil {
		return err
	}
	name := retiredName(hash)
	if name == "" {
		return fmt.Errorf("retire snapshot %s: %q is no content hash", tag, ellipsis.Clip(hash, 80))
	}
	return s.delete(tag, func() error {
		e, err := s.get(tag)
		if err != nil {
			return err
		}
		if e.ContentHash != hash {
			return fmt.Errorf("snapshot %s %w: it is another by now", tag, storeerr.ErrNotFound)
		}
		if err := s.layers.Pin(retiredPinPrefix+name, e.Manifest.LayerIDs()...); err != nil {
			return err
		}
		if err := failpoint.At(failpoint.SnapshotPrefix + "retire.rename"); err != nil {
			return err
		}
		s.naming.Lock()
		defer s.naming.Unlock()
		err = durable.RenameNew(s.Dir(tag), s.retiredDir(hash))
		if errors.Is(err, fs.ErrExist) { // an identical copy was retired before
			return os.RemoveAll(s.Dir(tag))
		}
		return err
	})
}

// OpenRetired is Open for a retired snapshot.
func (s *Store) OpenRetired(hash string) (*Files, error) {
	if retiredName(hash) == "" {
		return nil, fmt.Errorf("snapshot %w: %q is no content hash", storeerr.ErrNotFound, ellipsis.Clip(hash, 80))
	}
	e, err := s.Retired(hash)
	if err != nil {
		return nil, err
	}
	o, err := s.openEntry(s.retiredDir(hash), e)
	if err != nil {
		return nil, err
	}
	if err := o.whole(s.layers, e.Tag); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// Retired reads the manifest of a retired snapshot.
func (s *Store) Retired(hash string) (Entry, error) {
	dir := s.retiredDir(hash)
	if _, err := os.Lstat(dir); err != nil || retiredName(hash) == "" {
		return Entry{}, fmt.Errorf("snapshot %w: none is retired as %s", storeerr.ErrNotFound, ellipsis.Clip(hash, 80))
	}
	e, err := s.read(dir, "")
	if err == nil && e.ContentHash != hash {
		err = fmt.Errorf("%w: its %s has changed", storeerr.ErrNotRestorable, ManifestFile)
	}
	return e, err
}

// ListRetired returns the retired snapshots. A damaged one only has its content hash and error.
func (s *Store) ListRetired() ([]Entry, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list retired snapshots: %w", err)
	}
	var out []Entry
	for _, d := range entries {
		hex, retired := strings.CutPrefix(d.Name(), retiredPrefix)
		hash := hashPrefix + hex
		if !retired || !d.IsDir() || retiredName(hash) == "" {
			continue
		}
		e, err := s.Retired(hash)
		if errors.Is(err, storeerr.ErrNotFound) {
			continue // dropped meanwhile
		}
		e.ContentHash, e.Err = hash, err
		out = append(out, e)
	}
	return out, nil
}

// Drop removes a retired snapshot. Descriptors and mappings stay valid. The layers are removed at the layer
// store's next GC.
func (s *Store) Drop(hash string) error {
	name := retiredName(hash)
	if name == "" {
		return fmt.Errorf("drop snapshot: %q is no content hash", ellipsis.Clip(hash, 80))
	}
	gone, err := os.MkdirTemp(s.dir, deletedPrefix)
	if err != nil {
		return fmt.Errorf("drop snapshot %s: %w", hash, err)
	}
	defer os.RemoveAll(gone)
	if err := os.Rename(s.retiredDir(hash), filepath.Join(gone, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop snapshot %s: %w", hash, err)
	}
	if err := durable.SyncDir(s.dir); err != nil {
		return fmt.Errorf("drop snapshot %s: %w", hash, err)
	}
	if err := s.layers.Unpin(retiredPinPrefix + name); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("drop snapshot %s: %w", hash, err)
	}
	return nil
}

// settleRetired removes pins without a retired snapshot. A crash between the pin and the rename leaves such a
// pin; the snapshot still has its tag then.
func (s *Store) settleRetired(pins []string) error {
	for _, name := range pins {
		hex, ours := strings.CutPrefix(name, retiredPinPrefix)
		if !ours {
			continue
		}
		if _, err := os.Lstat(filepath.Join(s.dir, retiredPrefix+hex)); os.IsNotExist(err) {
			if err := s.layers.Unpin(name); err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
	}
	return nil
}
