package store

import (
	"context"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Draft is a layer that is being written, through the writer's methods. Its
// owner ends it with Commit or Discard; Discard after Commit does nothing. Not
// safe for concurrent use.
type Draft struct {
	*layer.Writer
	s     *Store
	file  *os.File
	ended bool
}

// DraftOptions are how a layer is written.
type DraftOptions struct {
	// Bytes of content that are coming, if known: a disk without room for them
	// is refused now and not half way.
	Bytes int64
}

// Create begins a layer. A spec without an ID gets one.
func (s *Store) Create(spec layer.Spec, opt DraftOptions) (*Draft, error) {
	d, err := s.create(spec, opt)
	if err != nil {
		return nil, fmt.Errorf("create layer: %w", layer.NoSpace(err))
	}
	return d, nil
}

func (s *Store) create(spec layer.Spec, opt DraftOptions) (*Draft, error) {
	if spec.ID.IsZero() {
		spec.ID = layer.NewID()
	}
	if err := s.room(opt.Bytes); err != nil {
		return nil, err
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	f, err := s.tempFileLocked()
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

// before looks at the disk's room while a layer grows.
func (s *Store) before(step layer.Step, bytes int64) error {
	if err := failpoint.At(failpoint.LayerPrefix + "write." + failpoint.Step(step)); err != nil {
		return err
	}
	return s.room(bytes)
}

// Commit makes the layer exist: content durable, then the name. Until the
// handle is closed or a pin names it, nothing else keeps it. After an error the
// draft is gone.
func (d *Draft) Commit() (*Handle, error) {
	if d.ended {
		return nil, fmt.Errorf("commit layer %s: its draft has ended", d.Spec().ID)
	}
	defer d.Discard()
	h, err := d.commit()
	if err != nil {
		return nil, fmt.Errorf("commit layer %s: %w", d.Spec().ID, layer.NoSpace(err))
	}
	return h, nil
}

func (d *Draft) commit() (*Handle, error) {
	s := d.s
	info, err := d.Finish()
	if err != nil {
		return nil, err
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return d.publishLocked(info.ID)
}

// publishLocked gives the layer its name.
func (d *Draft) publishLocked(id layer.ID) (*Handle, error) {
	s := d.s
	if err := rename("commit.rename", d.file.Name(), s.layerPath(id)); err != nil {
		return nil, err
	}
	d.ended = true
	d.file.Close() // and with it its lock; the store's keeps GC off until the handle has one
	err := failpoint.At(failpoint.LayerPrefix + "commit.sync")
	if err == nil {
		err = durable.SyncDir(s.path(layersDir))
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

// takeBack removes a layer that has its name and cannot be vouched for.
func (s *Store) takeBack(id layer.ID, err error) error {
	os.Remove(s.layerPath(id))
	return err
}

// rename is the step that makes a file exist. It replaces nothing.
func rename(step, from, to string) error {
	if err := failpoint.At(failpoint.LayerPrefix + failpoint.Step(step)); err != nil {
		return err
	}
	return durable.RenameNew(from, to)
}

// Discard removes what was written.
func (d *Draft) Discard() {
	if !d.ended {
		d.ended = true
		discard(d.file)
	}
}

// File is the file that the layer is written to, for a base that somebody else
// places in it (layer.Writer.Placed). It is the draft's to close.
func (d *Draft) File() *os.File { return d.file }

// Compact writes one layer that shows what chain[from:to] shows and can take
// their place, in at most so many runs (layer.MaxRuns if that is 0); the chain
// begins with its base. The layers themselves stay, for
// as long as they are held or open.
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

// compactBytes is about how much room a compaction takes: not more than the
// layers themselves, which may have holes.
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
