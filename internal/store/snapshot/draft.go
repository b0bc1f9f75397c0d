package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Draft is a snapshot being written. The owner ends it with Commit or Discard; Discard after Commit does nothing.
// It is not safe for concurrent use.
type Draft struct {
	store *Store
	tag   string
	dir   string
	files []*os.File
	late  []File // arrive later

	layers []*store.Handle // newly made layers, kept only by these handles until the pin
	held   bool
	ended  bool
}

// Create begins a snapshot. Its tag is taken until the draft ends.
func (s *Store) Create(tag string) (*Draft, error) {
	if err := CheckTag(tag); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, draftPrefix+tag)
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("%w: %s is being written", storeerr.ErrExists, tag)
		}
		return nil, fmt.Errorf("create snapshot %s: %w", tag, err)
	}
	// Check after the reservation; otherwise a snapshot committed in between would be missed.
	if _, err := os.Lstat(s.Dir(tag)); err == nil {
		os.Remove(dir)
		return nil, fmt.Errorf("%w: %s", storeerr.ErrExists, tag)
	}
	return &Draft{store: s, tag: tag, dir: dir}, nil
}

// File creates a file of the snapshot. The draft closes it.
func (d *Draft) File(name string) (*os.File, error) {
	if !plainName(name) {
		return nil, fmt.Errorf("create snapshot %s: %q is not a plain name", d.tag, name)
	}
	f, err := os.OpenFile(filepath.Join(d.dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create snapshot %s: %w", d.tag, err)
	}
	d.files = append(d.files, f)
	return f, nil
}

// Opened returns a file from File, Adopt or Copy, or nil. The draft closes it.
func (d *Draft) Opened(name string) *os.File {
	for _, f := range d.files {
		if filepath.Base(f.Name()) == name {
			return f
		}
	}
	return nil
}

// Drop removes a file created by File.
func (d *Draft) Drop(f *os.File) {
	d.files = slices.DeleteFunc(d.files, func(other *os.File) bool { return other == f })
	f.Close()
	os.Remove(f.Name())
}

// Adopt adds an open file of a store to the snapshot. The file must be immutable. Adopt makes a hard link if the
// file system can, and otherwise a copy. So the snapshot depends on no file outside its directory. Use Copy for
// files of other owners.
func (d *Draft) Adopt(ctx context.Context, name string, from *os.File) error {
	if !plainName(name) {
		return fmt.Errorf("create snapshot %s: %q is not a plain name", d.tag, name)
	}
	to := filepath.Join(d.dir, name)
	if durable.Link(from, to) != nil {
		return d.Copy(ctx, name, from)
	}
	f, err := os.Open(to)
	if err != nil {
		return fmt.Errorf("create snapshot %s: %w", d.tag, err)
	}
	d.files = append(d.files, f)
	return nil
}

// Copy copies an open file into the snapshot. The original may be written afterwards.
func (d *Draft) Copy(ctx context.Context, name string, from *os.File) error {
	f, err := d.File(name)
	if err != nil {
		return err
	}
	if err := durable.CopyFile(ctx, f, from); err != nil {
		return fmt.Errorf("create snapshot %s: %w", d.tag, err)
	}
	return nil
}

// Commit makes the snapshot exist. It makes the files durable, then pins its layers, which are committed already,
// then writes the manifest, then sets the name. It fills in Format, Tag, Files and the state's digest. After an
// error the caller still has to discard the draft.
func (d *Draft) Commit(m *Manifest) error {
	if err := d.commit(m); err != nil {
		return fmt.Errorf("write snapshot %s: %w", d.tag, err)
	}
	d.ended = true
	d.closeLayers() // the pin keeps them from here on
	return nil
}

func (d *Draft) commit(m *Manifest) error {
	m.Format, m.Tag, m.Files = Format, d.tag, nil
	for _, f := range d.files {
		st, err := f.Stat()
		if err != nil {
			return err
		}
		m.Files = append(m.Files, File{Name: filepath.Base(f.Name()), Bytes: st.Size()})
		if err := failpoint.At(failpoint.SnapshotPrefix + "file.sync"); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	m.Files = append(m.Files, d.late...)
	sum, err := d.stateDigest(m.State.File)
	if err != nil {
		return err
	}
	m.State.SHA256 = sum
	d.closeFiles()
	b, err := m.Encode()
	if err != nil {
		return err
	}
	if _, err := os.Lstat(d.store.Dir(d.tag)); err == nil {
		return storeerr.ErrExists // before the pin, which would replace the existing snapshot's pin
	}
	d.held = true // even on failure, because it may be half done
	if err := d.store.pin(d.tag, m); err != nil {
		return err
	}
	if err := failpoint.At(failpoint.SnapshotPrefix + "manifest.write"); err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(d.dir, ManifestFile), b); err != nil {
		return err
	}
	if err := failpoint.At(failpoint.SnapshotPrefix + "folder.sync"); err != nil {
		return err
	}
	if err := durable.SyncDir(d.dir); err != nil {
		return err
	}
	if err := failpoint.At(failpoint.SnapshotPrefix + "folder.rename"); err != nil {
		return err
	}
	// The rename would silently replace an empty directory with this name, but not a snapshot.
	if err := durable.RenameNew(d.dir, d.store.Dir(d.tag)); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return storeerr.ErrExists
		}
		return err
	}
	// The snapshot exists now. The draft cannot undo it, even if the name is not durable yet.
	d.ended = true
	if err := failpoint.At(failpoint.SnapshotPrefix + "store.sync"); err != nil {
		return err
	}
	return durable.SyncDir(d.store.dir)
}

func (d *Draft) stateDigest(name string) (string, error) {
	f, err := os.Open(filepath.Join(d.dir, name))
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (d *Draft) closeFiles() {
	for _, f := range d.files {
		f.Close()
	}
	d.files = nil
}

// Discard removes all written files and frees the tag. Layers made for it are removed at the layer store's next
// GC.
func (d *Draft) Discard() {
	d.closeLayers()
	d.closeFiles()
	if d.ended {
		return
	}
	d.ended = true
	if d.held {
		_ = d.store.layers.Unpin(pinPrefix + d.tag) // on failure, the next OpenStore does it
	}
	os.RemoveAll(d.dir)
}

func (d *Draft) closeLayers() {
	for _, h := range d.layers {
		h.Close()
	}
	d.layers = nil
}

// Layers returns the store for the snapshot's layers.
func (d *Draft) Layers() *store.Store { return d.store.layers }

// Keep takes ownership of the handle of a layer made for the snapshot. The draft closes it when the snapshot pins
// the layer or is discarded.
func (d *Draft) Keep(h *store.Handle) { d.layers = append(d.layers, h) }

// DraftDir returns the directory of a snapshot being written.
func (s *Store) DraftDir(tag string) string { return filepath.Join(s.dir, draftPrefix+tag) }
