package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Hash computes the digests of a layer if it has no digests yet. pause is called before each chunk and may block;
// it may be nil.
func (s *Store) Hash(ctx context.Context, id layer.ID, pause func(context.Context) error) error {
	h, err := s.Get(id)
	if err != nil {
		return err
	}
	defer h.Close()
	if s.Hashed(id) {
		return nil
	}
	d, err := h.Digest(ctx, pause)
	if err == nil {
		err = s.writeDigests(id, d)
	}
	if err != nil {
		return fmt.Errorf("hash layer %s: %w", id, storeerr.NoSpace(err))
	}
	// The content matches the digests that were just computed from it.
	return s.SetChecked(id, Checked{At: time.Now()})
}

func (s *Store) writeDigests(id layer.ID, d *layer.Digests) error {
	f, err := s.folder.writeTemp(d.Encode())
	if err != nil {
		return err
	}
	defer discard(f)
	unlock, err := s.folder.lock()
	if err != nil {
		return err
	}
	defer unlock()
	err = rename("hash.rename", f.Name(), s.folder.digestsPath(id))
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was faster
	}
	if err != nil {
		return err
	}
	if err := failpoint.At(failpoint.LayerPrefix + "hash.sync"); err != nil {
		return err
	}
	return durable.SyncDir(s.folder.path(layersDir))
}

// Digest returns the SHA-256 of a layer's digests, in hexadecimal. It identifies the whole content. If the layer
// has no digests yet, the error wraps ErrNotFound.
func (s *Store) Digest(id layer.ID) (string, error) {
	h, err := s.Get(id)
	if err != nil {
		return "", err
	}
	defer h.Close()
	d, err := s.digests(h.Info)
	if err != nil {
		return "", notFound("digests of layer "+id.String(), err)
	}
	return d.Sum(), nil
}

func (s *Store) digests(of layer.Info) (*layer.Digests, error) {
	f, err := durable.Open(s.folder.digestsPath(of.ID))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return layer.DecodeDigests(f, st.Size(), of)
}

// Damage is a damage found in a layer. If its length is 0, the whole layer is damaged.
type Damage struct {
	Layer layer.ID
	layer.Damage
}

// Verified is the result of a verification.
type Verified struct {
	Layers   int   // number of layers checked
	Bytes    int64 // size of the files compared with digests
	Damaged  []Damage
	Unhashed []layer.ID // layers without digests, where only header and index were checked
}

// Verify reads whole layers and compares them with their digests. Without ids it verifies all of the store.
// Damage is a result, not an error. progress reports bytes of all layers together; it may be nil.
func (s *Store) Verify(ctx context.Context, progress func(done, total int64), ids ...layer.ID) (Verified, error) {
	all := len(ids) == 0
	if all {
		list, err := s.List()
		if err != nil {
			return Verified{}, err
		}
		for _, e := range list {
			ids = append(ids, e.ID)
		}
	}
	v, err := s.openVerification(all, ids)
	if err != nil {
		return Verified{}, err
	}
	defer v.Close()
	return v.Run(ctx, progress)
}

// Verification is a set of layers opened with their digests. Run verifies the layers as they were when opened,
// even if they are unpinned and collected later.
type Verification struct {
	hashed  []*Handle
	digests []*layer.Digests // parallel to hashed
	total   int64
	found   Verified
}

// OpenVerification opens layers for a verification. The caller closes it.
func (s *Store) OpenVerification(ids ...layer.ID) (*Verification, error) {
	return s.openVerification(false, ids)
}

// openVerification skips missing layers if all is set.
func (s *Store) openVerification(all bool, ids []layer.ID) (*Verification, error) {
	v := &Verification{}
	for _, id := range ids {
		h, err := s.Get(id)
		if errors.Is(err, ErrNotFound) {
			if all {
				continue // removed since the listing
			}
			v.Close()
			return nil, err
		}
		v.found.Layers++
		if err != nil {
			v.damaged(id, layer.Damage{Detail: err.Error()})
			continue
		}
		d, err := s.digests(h.Info)
		switch {
		case err == nil:
			v.hashed, v.digests = append(v.hashed, h), append(v.digests, d)
			v.total += h.FileBytes()
			continue
		case errors.Is(err, fs.ErrNotExist):
			v.found.Unhashed = append(v.found.Unhashed, id)
		default:
			v.damaged(id, layer.Damage{Detail: err.Error()})
		}
		h.Close()
	}
	return v, nil
}

// Run reads the layers and returns the result. It may be called only once.
func (v *Verification) Run(ctx context.Context, progress func(done, total int64)) (Verified, error) {
	var done int64
	for i, h := range v.hashed {
		found, err := h.Verify(ctx, v.digests[i], func(n, _ int64) {
			if progress != nil {
				progress(done+n, v.total)
			}
		})
		for _, d := range found {
			v.damaged(h.ID, d)
		}
		if err != nil {
			return v.found, fmt.Errorf("verify layer %s: %w", h.ID, err)
		}
		done += h.FileBytes()
	}
	v.found.Bytes = done
	return v.found, nil
}

// Close closes the layers. A second call does nothing.
func (v *Verification) Close() {
	for _, h := range v.hashed {
		h.Close()
	}
	v.hashed = nil
}

func (v *Verification) damaged(id layer.ID, d layer.Damage) {
	v.found.Damaged = append(v.found.Damaged, Damage{id, d})
}
