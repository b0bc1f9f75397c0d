//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/routes/images"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// imageStore adapts the image store to the API, with the API's types and the domain's sentinels.
type imageStore struct {
	store *image.Store
	// room returns an error if the disk has only its reserve left. If nil, there is no limit.
	room func() error
}

// imageRoom checks the space for images in a directory. As for snapshots, a reserve stays free.
func imageRoom(dir string, reserve int64) func() error {
	return func() error {
		free, total, err := hostproc.Disk(dir)
		if err != nil || total == 0 || free >= reserve {
			return nil // an unknown size does not stop an import
		}
		return sandbox.Errorf(sandbox.ErrNoSpace, sandbox.ReasonStoreFull,
			"no space left in the store: %d MiB free including the reserve of %d MiB", free>>20, reserve>>20)
	}
}

// looksForRoom is the number of bytes between two checks of an import. An import may use at most
// this much of the reserve.
const looksForRoom = 4 << 20

// roomy is a stream that returns an error when the space is used up.
type roomy struct {
	r    io.Reader
	room func() error
	left int // bytes until the next check
}

func (r *roomy) Read(b []byte) (int, error) {
	if r.left <= 0 {
		if err := r.room(); err != nil {
			return 0, err
		}
		r.left = looksForRoom
	}
	n, err := r.r.Read(b[:min(len(b), r.left)])
	r.left -= n
	return n, err
}

var _ images.Store = imageStore{}

func (s imageStore) ListImages(context.Context) ([]images.Image, error) {
	list, err := s.store.List() // damaged images are left out and named in err
	var out []images.Image
	for _, img := range list {
		wire, err := wireImage(img)
		if err != nil {
			return nil, err
		}
		out = append(out, wire)
	}
	if len(list) > 0 {
		err = nil
	}
	return out, imageError(err)
}

func (s imageStore) GetImage(_ context.Context, name string) (images.Image, error) {
	img, err := s.store.Get(name)
	if err != nil {
		return images.Image{}, imageError(err)
	}
	return wireImage(img)
}

func (s imageStore) RemoveImage(_ context.Context, name string) error {
	return imageError(s.store.Remove(name))
}

// ImportImage checks the metadata, which come first in the stream, before the store replaces an
// image.
func (s imageStore) ImportImage(ctx context.Context, name, digest string, r io.Reader) (images.Image, error) {
	if s.room != nil {
		r = &roomy{r: r, room: s.room}
	}
	whole, id, err := peekMetadata(r, name)
	if err != nil {
		return images.Image{}, fmt.Errorf("import image %s: %w", name, err)
	}
	if digest != "" && digest != "sha256:"+id {
		return images.Image{}, fmt.Errorf("import image %s: the stream has digest sha256:%s, not %s: %w",
			name, id, digest, sandbox.ErrInvalid)
	}
	img, err := s.store.Import(ctx, whole)
	if err != nil {
		return images.Image{}, imageError(err)
	}
	return wireImage(img)
}

// maxMetadata limits the first file of a stream, in bytes.
const maxMetadata = 4 << 20

// peekMetadata reads the stream's first file and checks the image's name in it. It returns the
// whole stream, including the bytes already read, and the image's ID.
func peekMetadata(r io.Reader, name string) (whole io.Reader, id string, err error) {
	var read bytes.Buffer
	t := tar.NewReader(io.TeeReader(io.LimitReader(r, maxMetadata+16<<10), &read))
	h, err := t.Next()
	if err != nil {
		return nil, "", fmt.Errorf("read stream: %w", streamError(err))
	}
	if h.Name != image.MetadataFile || h.Size > maxMetadata {
		return nil, "", fmt.Errorf("the stream begins with %q, not with %s: %w",
			h.Name, image.MetadataFile, sandbox.ErrInvalid)
	}
	b, err := io.ReadAll(t)
	if err != nil {
		return nil, "", fmt.Errorf("read %s: %w", image.MetadataFile, streamError(err))
	}
	var m image.Metadata
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, "", fmt.Errorf("decode %s: %w: %w", image.MetadataFile, err, sandbox.ErrInvalid)
	}
	if m.Name != name {
		return nil, "", fmt.Errorf("the stream holds image %q: %w", m.Name, sandbox.ErrInvalid)
	}
	id, err = m.ID()
	return io.MultiReader(&read, r), id, err
}

// streamError returns an error of the stream as the client's, unless it says that there is no space.
func streamError(err error) error {
	if errors.Is(err, sandbox.ErrNoSpace) {
		return err
	}
	return fmt.Errorf("%w: %w", err, sandbox.ErrInvalid)
}

func wireImage(img image.Image) (images.Image, error) {
	id, err := img.ID()
	return images.Image{
		Name: img.Name, Digest: "sha256:" + id, SizeBytes: img.Size(), CreatedAt: img.Created,
		Kernel: img.Metadata.Kernel.Release, MemoryMiB: img.Defaults.MemoryMiB, VCPUs: img.Defaults.VCPUs,
		Description: img.Description, Start: img.Defaults.Start, Container: wireContainer(img),
	}, err
}

// wireContainer returns nil for an image of a recipe.
func wireContainer(img image.Image) *api.ImageContainer {
	c := img.Container
	if c == nil {
		return nil
	}
	return &api.ImageContainer{
		Reference: c.Reference, Digest: c.Digest, Entrypoint: c.Entrypoint, Cmd: c.Cmd,
		User: img.Defaults.User, Workdir: img.Defaults.Workdir, Env: img.Defaults.Env,
		ExposedPorts: c.ExposedPorts, StopSignal: c.StopSignal, Healthcheck: (*api.ImageHealthcheck)(c.Healthcheck),
	}
}

// imageError adds the sentinel the API branches on.
func imageError(err error) error {
	if own := (*sandbox.Error)(nil); errors.As(err, &own) {
		return err // it already has one
	}
	if errors.Is(err, image.ErrNotFound) {
		return sandbox.Errorf(sandbox.ErrNotFound, sandbox.ReasonImageNotFound, "%w", err)
	}
	for _, row := range []struct{ is, means error }{
		{image.ErrName, sandbox.ErrInvalid},
		{image.ErrDamaged, sandbox.ErrConflict},
		{syscall.ENOSPC, sandbox.ErrNoSpace},
		{syscall.EDQUOT, sandbox.ErrNoSpace},
		{io.ErrUnexpectedEOF, sandbox.ErrInvalid},
	} {
		if errors.Is(err, row.is) {
			return fmt.Errorf("%w (%w)", err, row.means)
		}
	}
	return err
}
