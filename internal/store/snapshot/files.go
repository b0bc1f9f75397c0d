package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
)

// Files holds a snapshot's open files for reading. They stay valid if the snapshot is deleted. The caller closes
// them.
type Files struct {
	Manifest    *Manifest
	ContentHash string
	Memory      *store.Chain   // nil until opened
	Disks       []*store.Chain // by disk; nil for a disk that is a file
	byName      map[string]*os.File
	proofs      proofs // for comparison in Verify
}

// Open opens every file and layer of a snapshot. It checks their sizes, and the state's content, because the
// state is small, and a bad one would make every child fail.
func (s *Store) Open(tag string) (*Files, error) {
	return s.open(tag, func(o *Files) error { return o.whole(s.layers, tag) })
}

// whole opens the layers and checks the state.
func (o *Files) whole(layers *store.Store, tag string) error {
	if err := o.openChains(layers); err != nil {
		return fmt.Errorf("snapshot %s: %w: %w", tag, storeerr.ErrNotRestorable, err)
	}
	if err := o.checkState(); err != nil {
		return damaged(tag, o.Manifest.State.File, err)
	}
	return nil
}

// open is Open without checking content and without opening layers. more, if not nil, opens other parts of the
// same snapshot.
func (s *Store) open(tag string, more func(*Files) error) (o *Files, err error) {
	err = s.steady(tag, func() error {
		o, err = s.openFiles(tag)
		if err == nil && more != nil {
			if err = more(o); err != nil {
				o.Close()
			}
		}
		return err
	}, func() {
		if err == nil {
			o.Close()
		}
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

func (s *Store) openFiles(tag string) (*Files, error) {
	e, err := s.get(tag)
	if err != nil {
		return nil, err
	}
	return s.openEntry(s.Dir(tag), e)
}

func (s *Store) openEntry(dir string, e Entry) (*Files, error) {
	o := &Files{Manifest: e.Manifest, ContentHash: e.ContentHash, byName: make(map[string]*os.File, len(e.Manifest.Files))}
	for _, want := range e.Manifest.Files {
		s.tell(want.Name)
		if err := o.open(filepath.Join(dir, want.Name), want, s.layers); err != nil {
			o.Close()
			return nil, damaged(e.Tag, want.Name, err)
		}
	}
	return o, nil
}

func (s *Store) tell(name string) {
	if s.opening != nil {
		s.opening(name)
	}
}

func (o *Files) checkState() error {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(o.State(), 0, maxStateBytes)); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != o.Manifest.State.SHA256 {
		return errors.New("changed since it was written")
	}
	return nil
}

func (o *Files) open(path string, want File, layers *store.Store) error {
	f, err := openLate(path, layers)
	if err != nil {
		return err
	}
	o.byName[want.Name] = f
	st, err := f.Stat()
	if err != nil {
		return err
	}
	return checkFile(st, want)
}

// openChains assembles memory and disks.
func (o *Files) openChains(layers *store.Store) (err error) {
	m := o.Manifest
	if o.Memory, err = openChain(layers, m.Memory, layer.Memory, m.Shape.MemoryBytes()); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	o.Disks = make([]*store.Chain, len(m.Disks))
	for i, d := range m.Disks {
		if len(d.Layers) == 0 {
			continue
		}
		if o.Disks[i], err = openChain(layers, d.Chain, layer.Disk, d.LayerBytes()); err != nil {
			return fmt.Errorf("disk %d: %w", i, err)
		}
	}
	return nil
}

func openChain(layers *store.Store, c Chain, kind layer.Kind, size int64) (*store.Chain, error) {
	chain, err := layers.Chain(c.Layers...)
	if err != nil {
		return nil, err
	}
	if chain.Kind() != kind || chain.Size() != size {
		chain.Close()
		return nil, fmt.Errorf("its layers are %d bytes of %s, want %d of %s", chain.Size(), chain.Kind(), size, kind)
	}
	return chain, nil
}

// File returns the open file with this name, or nil.
func (o *Files) File(name string) *os.File { return o.byName[name] }

// State returns the file of the VM's state.
func (o *Files) State() *os.File { return o.byName[o.Manifest.State.File] }

// Close closes all files and layers.
func (o *Files) Close() {
	for _, f := range o.byName {
		f.Close()
	}
	for _, c := range append([]*store.Chain{o.Memory}, o.Disks...) {
		if c != nil {
			c.Close()
		}
	}
	o.proofs.close()
}
