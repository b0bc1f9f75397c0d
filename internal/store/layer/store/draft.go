package store

import (
	"context"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Draft is a layer being written, with the writer's methods. The owner ends it with Commit or Discard; Discard
// after Commit does nothing. It is not safe for concurrent use.
type Draft struct {
	*layer.Writer
	s     *Store
	file  *os.File
	ended bool
}

// DraftOptions configures the writing of a layer.
type DraftOptions struct {
	// Bytes is the size of the content, if known. If the disk lacks room for it, Create fails early.
	Bytes int64
}

// Create begins a layer. If the spec has no ID, Create sets one.
func (s *Store) Create(spec layer.Spec, opt DraftOptions) (*Draft, error) {
	d, err := s.create(spec, opt)
	if err != nil {
		return nil, fmt.Errorf("create layer: %w", storeerr.NoSpace(err))
	}
	return d, nil
}

func (s *Store) create(spec layer.Spec, opt DraftOptions) (*Draft, error) {
	if spec.ID.IsZero() {
		spec.ID = layer.NewID()
	}
	if err := s.folder.room(opt.Bytes); err != nil {
		return nil, err
	}
	unlock, err := s.folder.lock()
	if err != nil {
		return nil, err
	}
	f, err := s.folder.tempFileLocked()
	unlock()
	if err != nil {
		return nil, err
	}
	w, err := layer.NewWriter(f, spec, layer.Options{Before: s.before})
	if err == nil {
		err = failpoint.At(failpoint.LayerPrefix + "create")
	}
	if err != nil {
		discard(f)
		return nil, err
	}
	return &Draft{Writer: w, s: s, file: f}, nil
}

// before checks the disk's free space as a layer grows.
func (s *Store) before(step layer.Step, bytes int64) error {
	if err := failpoint.At(failpoint.LayerPrefix + "write." + failpoint.Step(step)); err != nil {
		return err
	}
	return s.folder.room(bytes)
}

// Commit makes the layer's content durable and then gives it its name. Until a pin names the layer, only the
// returned handle keeps it. After an error the draft has ended.
func (d *Draft) Commit() (*Handle, error) {
	if d.ended {
		return nil, fmt.Errorf("commit layer %s: its draft has ended", d.Spec().ID)
	}
	defer d.Discard()
	h, err := d.commit()
	if err != nil {
		return nil, fmt.Errorf("commit layer %s: %w", d.Spec().ID, storeerr.NoSpace(err))
	}
	return h, nil
}

func (d *Draft) commit() (*Handle, error) {
	s := d.s
	info, err := d.Finish()
	if err != nil {
		return nil, err
	}
	unlock, err := s.folder.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return d.publishLocked(info.ID)
}

// publishLocked gives the layer its name.
func (d *Draft) publishLocked(id layer.ID) (*Handle, error) {
	s := d.s
	if err := rename("commit.rename", d.file.Name(), s.folder.layerPath(id)); err != nil {
		return nil, err
	}
	d.ended = true
	d.file.Close() // releases its lock; the store's lock keeps GC away until the handle has one
	err := failpoint.At(failpoint.LayerPrefix + "commit.sync")
	if err == nil {
		err = durable.SyncDir(s.folder.path(layersDir))
	}
	if err != nil {
		return nil, s.takeBack(id, err)
	}
	h, err := s.Get(id)
	if err != nil {
		return nil, s.takeBack(id, err)
	}
	return h, nil
}

// takeBack removes a named layer that may not be durable.
func (s *Store) takeBack(id layer.ID, err error) error {
	os.Remove(s.folder.layerPath(id))
	return err
}

// rename gives a file its final name. It replaces no existing file.
func rename(step, from, to string) error {
	if err := failpoint.At(failpoint.LayerPrefix + failpoint.Step(step)); err != nil {
		return err
	}
	return durable.RenameNew(from, to)
}

// Discard removes the layer's file.
func (d *Draft) Discard() {
	if !d.ended {
		d.ended = true
		discard(d.file)
	}
}

// File returns the layer's file, for a caller that places a base in it (layer.Writer.Placed). The draft closes
// it.
func (d *Draft) File() *os.File { return d.file }

// Compact writes one layer with the content of chain[from:to], to replace them. It has at most runs runs
// (layer.MaxRuns if runs is 0). The chain begins with its base. The replaced layers stay as long as they are
// pinned or open.
func (s *Store) Compact(ctx context.Context, chain []*layer.Layer, from, to, runs int,
	progress func(done, total int64)) (*Handle, error) {
	spec, err := layer.CompactSpec(layer.NewID(), chain, from, to)
	if err != nil {
		return nil, err
	}
	d, err := s.Create(spec, DraftOptions{Bytes: compactBytes(chain, from, to, runs)})
	if err != nil {
		return nil, err
	}
	defer d.Discard()
	if err := layer.Compact(ctx, d.Writer, chain, from, to, runs, progress); err != nil {
		return nil, err
	}
	return d.Commit()
}

// compactBytes estimates the size of a compaction. It is at most the size of the layers on disk, which may have
// holes.
func compactBytes(chain []*layer.Layer, from, to, runs int) int64 {
	var stored int64
	for _, l := range chain {
		n, err := diskBytes(l.File())
		if err != nil {
			n = l.DataBytes
		}
		stored += n
	}
	return min(layer.CompactBytes(chain, from, to, runs), stored)
}
