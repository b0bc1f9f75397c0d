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
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Draft is a snapshot that is being written. Its owner ends it with Commit or
// Discard; Discard after Commit does nothing. Not safe for concurrent use.
type Draft struct {
	store *Store
	tag   string
	dir   string
	files []*os.File

	layers []*store.Handle // that were made for it: nothing else keeps them until the pin
	held   bool
	ended  bool
}

// Create begins a snapshot. While the draft lives its tag is taken.
func (s *Store) Create(tag string) (*Draft, error) {
	if err := CheckTag(tag); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, draftPrefix+tag)
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("%w: %s is being written", ErrExists, tag)
		}
		return nil, fmt.Errorf("create snapshot %s: %w", tag, err)
	}
	// After the reservation: else a snapshot that is committed in between is missed.
	if _, err := os.Lstat(s.Dir(tag)); err == nil {
		os.Remove(dir)
		return nil, fmt.Errorf("%w: %s", ErrExists, tag)
	}
	return &Draft{store: s, tag: tag, dir: dir}, nil
}

// File makes a file of the snapshot. The draft closes it.
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

// Opened is a file that File made, or Adopt or Copy took, or nil. The draft closes it.
func (d *Draft) Opened(name string) *os.File {
	for _, f := range d.files {
		if filepath.Base(f.Name()) == name {
			return f
		}
	}
	return nil
}

// Drop takes back a file that File made.
func (d *Draft) Drop(f *os.File) {
	d.files = slices.DeleteFunc(d.files, func(other *os.File) bool { return other == f })
	f.Close()
	os.Remove(f.Name())
}

// Adopt takes an open file of a store, which is never written again, into the
// snapshot, by another name for it where the file system can and else by a copy: the
// snapshot then needs nothing outside its directory. What is not a store's is for Copy.
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

// Copy takes a copy of an open file into the snapshot: whoever has the original may
// write to it from then on.
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

// Commit makes the snapshot exist: files durable, then a pin on its layers, which
// are committed already, then the manifest, then the name. It fills in Format, Tag,
// Files and the state's digest. After an error the draft is still to be discarded.
func (d *Draft) Commit(m *Manifest) error {
	if err := d.commit(m); err != nil {
		return fmt.Errorf("write snapshot %s: %w", d.tag, err)
	}
	d.ended = true
	d.closeLayers() // the pin keeps them now
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
		return ErrExists // before the pin: it would replace that one's
	}
	d.held = true // even if it fails: it may be half done
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
	// An empty directory of that name would be replaced silently, a snapshot is not.
	if err := durable.RenameNew(d.dir, d.store.Dir(d.tag)); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return ErrExists
		}
		return err
	}
	// It exists. That its name is durable is not the draft's to take back.
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

// Discard removes all that was written and frees the tag. Layers that were made
// for it go at the layer store's next GC.
func (d *Draft) Discard() {
	d.closeLayers()
	d.closeFiles()
	if d.ended {
		return
	}
	d.ended = true
	if d.held {
		_ = d.store.layers.Unpin(pinPrefix + d.tag) // else the next OpenStore does
	}
	os.RemoveAll(d.dir)
}

func (d *Draft) closeLayers() {
	for _, h := range d.layers {
		h.Close()
	}
	d.layers = nil
}

// Layers is the store that the snapshot's layers are made in.
func (d *Draft) Layers() *store.Store { return d.store.layers }

// Keep takes over the handle of a layer that was made for the snapshot: it is
// closed when the snapshot holds the layer, or is given up.
func (d *Draft) Keep(h *store.Handle) { d.layers = append(d.layers, h) }

// DraftDir is the directory of a snapshot that is being written.
func (s *Store) DraftDir(tag string) string { return filepath.Join(s.dir, draftPrefix+tag) }
