package ociimage

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/forkd/forkd/internal/images/erofs"
)

// Root is the merged tree of an image's layers.
type Root struct {
	image *Image
	tree  *tree
}

// Merge reads and verifies all layers, and merges them. It keeps names and attributes, but no content of files.
func (i *Image) Merge(ctx context.Context, report func(fraction float64)) (*Root, error) {
	r := &Root{image: i, tree: newTree(i.limits)}
	unpacked := i.limits.Unpacked
	for k, l := range i.layers {
		n, err := r.mergeLayer(ctx, l, unpacked)
		if err != nil {
			return nil, fmt.Errorf("layer %d of %d: %w", k+1, len(i.layers), err)
		}
		unpacked -= n
		report(float64(k+1) / float64(len(i.layers)))
	}
	return r, nil
}

func (r *Root) mergeLayer(ctx context.Context, l layer, unpacked int64) (int64, error) {
	s, err := openStream(ctx, l, r.image.limits, unpacked)
	if err != nil {
		return 0, err
	}
	err = r.tree.apply(ctx, s.data)
	if err == nil {
		err = s.finish()
	}
	return s.data.n, errors.Join(err, s.close())
}

// Write writes the root to a new file as an EROFS image. uuid has 32 hexadecimal digits, and may have hyphens. The
// layers are read a second time. Write may be called once.
func (r *Root) Write(ctx context.Context, path, uuid string, report func(fraction float64)) (err error) {
	id, err := parseUUID(uuid)
	if err != nil {
		return err
	}
	files := r.tree.finish(len(r.image.layers))
	plan, err := erofs.Plan(&r.tree.root.Inode, id)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := checkSpace(filepath.Dir(path), plan.Size()); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := errors.Join(f.Truncate(plan.Size()), plan.WriteMetadata(f)); err != nil {
		return err
	}
	if err := r.writeKept(f, plan); err != nil {
		return err
	}
	for k := range r.image.layers {
		if err := r.writeLayer(ctx, f, plan, k, files[k+1]); err != nil {
			return fmt.Errorf("layer %d of %d: %w", k+1, len(r.image.layers), err)
		}
		report(float64(k+1) / float64(len(r.image.layers)))
	}
	return nil
}

// writeKept writes the files whose content is in memory.
func (r *Root) writeKept(w io.WriterAt, plan *erofs.Image) error {
	var all []*node
	var walk func(n *node)
	walk = func(n *node) {
		if n.data != nil && n.Type() == erofs.TypeFile {
			all = append(all, n)
		}
		for _, c := range n.names {
			walk(c.node)
		}
	}
	walk(r.tree.root)
	for _, n := range all {
		if err := plan.WriteFile(w, &n.Inode, bytes.NewReader(n.data)); err != nil {
			return err
		}
	}
	return nil
}

// writeLayer writes the files of one layer that the tree has in the end.
func (r *Root) writeLayer(ctx context.Context, w io.WriterAt, plan *erofs.Image, k int, files map[int]*node) error {
	if len(files) == 0 {
		return nil
	}
	s, err := openStream(ctx, r.image.layers[k], r.image.limits, r.image.limits.Unpacked)
	if err != nil {
		return err
	}
	err = copyFiles(tar.NewReader(s.data), w, plan, files)
	if err == nil {
		err = s.finish() // a local file may have changed since Merge
	}
	return errors.Join(err, s.close())
}

func copyFiles(archive *tar.Reader, w io.WriterAt, plan *erofs.Image, files map[int]*node) error {
	for entry := 0; ; entry++ {
		h, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return unpackError(err)
		}
		n, ok := files[entry]
		if !ok {
			continue
		}
		if h.Size != n.Size {
			return invalid("the layer changed while it was read")
		}
		if err := plan.WriteFile(w, &n.Inode, archive); err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

func parseUUID(s string) (id [16]byte, err error) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("%q is not a UUID", s)
	}
	return [16]byte(b), nil
}

// reserve is the space that stays free for others, in bytes.
const reserve = 64 << 20

func checkSpace(dir string, need int64) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return nil // the size of the disk is unknown
	}
	if free := int64(st.Bavail) * st.Bsize; free < need+reserve { // #nosec G115 -- no disk has 2^63 bytes
		return fmt.Errorf("the image needs %d MiB, and %s has %d MiB free: %w", need>>20, dir, free>>20, syscall.ENOSPC)
	}
	return nil
}
