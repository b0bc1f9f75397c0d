package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Hash makes the digests of a layer that was written without, and does nothing if
// it has them. pause is called before every chunk and may block; it may be nil.
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
		return fmt.Errorf("hash layer %s: %w", id, layer.NoSpace(err))
	}
	// What the digests were just made of is what they say.
	return s.SetChecked(id, Checked{At: time.Now()})
}

func (s *Store) writeDigests(id layer.ID, d *layer.Digests) error {
	f, err := s.writeTemp(d.Encode())
	if err != nil {
		return err
	}
	defer discard(f)
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	err = rename("hash.rename", f.Name(), s.digestsPath(id))
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was sooner
	}
	if err != nil {
		return err
	}
	if err := failpoint.At(failpoint.LayerPrefix + "hash.sync"); err != nil {
		return err
	}
	return durable.SyncDir(s.path(layersDir))
}

// Digest is the SHA-256 over a layer's digests, in hexadecimal: it stands for the
// whole of it. An error that wraps ErrNotFound: it has none yet.
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
	f, err := durable.Open(s.digestsPath(of.ID))
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

// Damage is what verification found in a layer. Without a length it is of the
// layer as a whole.
type Damage struct {
	Layer layer.ID
	layer.Damage
}

// Verified is what a verification found.
type Verified struct {
	Layers   int   // looked at
	Bytes    int64 // of files compared with digests
	Damaged  []Damage
	Unhashed []layer.ID // have no digests yet; only header and index were checked
}

// Verify reads layers whole, all of the store if none is named, and compares
// them with their digests. Damage is a finding, not an error. progress hears of
// bytes of all of them together; it may be nil.
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

// Verification is layers opened with their digests, to be read whole: it finds
// what was there at that moment, whatever is released and collected later.
type Verification struct {
	hashed  []*Handle
	digests []*layer.Digests // of each of hashed
	total   int64
	found   Verified
}

// OpenVerification opens layers as Verify does. The caller closes it.
func (s *Store) OpenVerification(ids ...layer.ID) (*Verification, error) {
	return s.openVerification(false, ids)
}

// openVerification passes over layers that are gone if these are all that there were.
func (s *Store) openVerification(all bool, ids []layer.ID) (*Verification, error) {
	v := &Verification{}
	for _, id := range ids {
		h, err := s.Get(id)
		if errors.Is(err, ErrNotFound) {
			if all {
				continue // removed since it was listed
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

// Run reads the layers and says what it found. It is called once.
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
