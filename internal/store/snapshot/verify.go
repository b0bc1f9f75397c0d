package snapshot

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer/store"
)

// Damage is a range of a file with content that differs from the data written.
type Damage struct {
	File           string
	Offset, Length int64
	Detail         string
}

// Report is the result of a verification.
type Report struct {
	Files   int   // including layers
	Bytes   int64 // hashed
	Damaged []Damage
}

// Verify reads a whole snapshot, files and layers, and compares it with its digests. Damage is a result, not an
// error. An error means that the verification could not run, or that the manifest or the digests themselves are
// damaged (ErrNotRestorable).
func (s *Store) Verify(ctx context.Context, tag string) (Report, error) {
	return s.VerifyTelling(ctx, tag, nil)
}

// VerifyTelling is Verify with a callback for the bytes of layers read. progress may be nil.
func (s *Store) VerifyTelling(ctx context.Context, tag string, progress func(done, total int64)) (Report, error) {
	var r Report
	files, err := s.open(tag, s.openProofs)
	if err != nil {
		return r, err
	}
	defer files.Close()
	s.tell(contentRead)
	for _, f := range files.Manifest.Files {
		r.Files++
		if f.Name == files.Manifest.State.File {
			r.state(files, f)
		} else {
			err = r.content(ctx, files.File(f.Name), f, files.proofs.digests[f.Name])
		}
		if err != nil {
			return r, fmt.Errorf("verify %s of snapshot %s: %w", f.Name, tag, err)
		}
	}
	return r, r.layers(ctx, s, files, progress)
}

// proofs holds the digests for a verification, and the snapshot's layers. They are opened at the same moment as
// its files. Otherwise a reused tag, or layers collected meanwhile, would look like damage.
type proofs struct {
	digests digests
	layers  *store.Verification
}

func (p *proofs) close() {
	if p.layers != nil {
		p.layers.Close()
	}
}

func (s *Store) openProofs(o *Files) (err error) {
	tag := o.Manifest.Tag
	s.tell(DigestFile)
	o.proofs.digests, err = readDigests(filepath.Join(s.Dir(tag), DigestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("snapshot %s: %w", tag, storeerr.ErrNoDigests)
	}
	if err != nil {
		return damaged(tag, DigestFile, err)
	}
	s.tell(layersOpened)
	if o.proofs.layers, err = s.layers.OpenVerification(o.Manifest.LayerIDs()...); err != nil {
		return fmt.Errorf("verify snapshot %s: %w", tag, err)
	}
	return nil
}

// Other values passed to Store.opening, besides names of files: all layers are open; everything is open and the
// content is about to be read.
const (
	layersOpened = "layers"
	contentRead  = "content"
)

func (r *Report) layers(ctx context.Context, s *Store, files *Files, progress func(done, total int64)) error {
	m := files.Manifest
	found, err := files.proofs.layers.Run(ctx, progress)
	if err != nil {
		return fmt.Errorf("verify snapshot %s: %w", m.Tag, err)
	}
	if len(found.Unhashed) > 0 {
		return fmt.Errorf("snapshot %s: %w", m.Tag, storeerr.ErrNoDigests)
	}
	r.Files += found.Layers
	for _, id := range m.LayerIDs() {
		if n, err := s.layers.Bytes(id); err == nil { // without holes
			r.Bytes += n
		}
	}
	for _, d := range found.Damaged {
		r.Damaged = append(r.Damaged, Damage{File: LayerFile(d.Layer), Offset: d.Offset, Length: d.Length, Detail: d.Detail})
	}
	return nil
}

func (r *Report) state(files *Files, meta File) {
	r.Bytes += meta.Bytes
	if err := files.checkState(); err != nil {
		r.add(meta, 0, meta.Bytes, err.Error())
	}
}

func (r *Report) content(ctx context.Context, f *os.File, meta File, want map[int64][sha256.Size]byte) error {
	if want == nil {
		r.add(meta, 0, meta.Bytes, "has no digests")
		return nil
	}
	seen := make(map[int64]bool, len(want))
	err := chunks(ctx, f, meta.Bytes, nil, func(i int64, b []byte) error {
		seen[i] = true
		r.Bytes += int64(len(b))
		sum, known := want[i]
		switch {
		case !known:
			r.add(meta, i*ChunkBytes, int64(len(b)), "holds data where zeros were written")
		case sum != sha256.Sum256(b):
			r.add(meta, i*ChunkBytes, int64(len(b)), "changed since it was written")
		}
		return nil
	})
	for i := range want {
		if !seen[i] && err == nil {
			r.add(meta, i*ChunkBytes, ChunkBytes, "holds zeros where data was written")
		}
	}
	slices.SortFunc(r.Damaged, func(a, b Damage) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Offset, b.Offset))
	})
	return err
}

func (r *Report) add(f File, offset, length int64, detail string) {
	r.Damaged = append(r.Damaged, Damage{File: f.Name, Offset: offset, Length: length, Detail: detail})
}
