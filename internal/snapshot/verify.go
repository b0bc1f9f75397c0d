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
)

// Damage is a range of a file whose content is not what was written.
type Damage struct {
	File           string
	Offset, Length int64
	Detail         string
}

// Report is what a verification found.
type Report struct {
	Files   int   // layers are files too
	Bytes   int64 // hashed
	Damaged []Damage
}

// Verify reads a snapshot whole, files and layers, and compares it with its digests. Damage is a
// finding, not an error; an error means that it could not be looked for, or
// that the manifest or the digests themselves are damaged (ErrNotRestorable).
func (s *Store) Verify(ctx context.Context, tag string) (Report, error) {
	var r Report
	files, err := s.open(tag)
	if err != nil {
		return r, err
	}
	defer files.Close()
	want, err := readDigests(filepath.Join(s.Dir(tag), DigestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("snapshot %s: %w", tag, ErrNoDigests)
	}
	if err != nil {
		return r, damaged(tag, DigestFile, err)
	}
	for _, f := range files.Manifest.Files {
		r.Files++
		if f.Name == files.Manifest.State.File {
			r.state(files, f)
		} else {
			err = r.content(ctx, files.File(f.Name), f, want[f.Name])
		}
		if err != nil {
			return r, fmt.Errorf("verify %s of snapshot %s: %w", f.Name, tag, err)
		}
	}
	return r, r.layers(ctx, s, files.Manifest)
}

func (r *Report) layers(ctx context.Context, s *Store, m *Manifest) error {
	found, err := s.layers.Verify(ctx, nil, m.LayerIDs()...)
	if err != nil {
		return fmt.Errorf("verify snapshot %s: %w", m.Tag, err)
	}
	if len(found.Unsealed) > 0 {
		return fmt.Errorf("snapshot %s: %w", m.Tag, ErrNoDigests)
	}
	r.Files += found.Layers
	for _, id := range m.LayerIDs() {
		if n, err := s.layers.Bytes(id); err == nil { // without their holes
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
