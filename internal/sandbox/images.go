package sandbox

import (
	"context"
	"errors"

	"github.com/forkd/forkd/internal/image"
)

// StoredImages lets an engine boot the images of a store.
func StoredImages(s *image.Store) Images { return storedImages{s} }

type storedImages struct{ store *image.Store }

func (s storedImages) Image(_ context.Context, name string) (Image, error) {
	img, err := s.store.Get(name)
	switch {
	case errors.Is(err, image.ErrNotFound):
		return Image{}, problem(ErrNotFound, "`forkd image ls` shows the images there are, `forkd image build` makes one", "%w", err)
	case errors.Is(err, image.ErrName):
		return Image{}, problem(ErrInvalid, "", "%w", err)
	case errors.Is(err, image.ErrDamaged):
		return Image{}, problem(ErrConflict, "remove the image and build it again", "%w", err)
	case err != nil:
		return Image{}, err
	}
	id, err := img.ID()
	if err != nil {
		return Image{}, err
	}
	out := Image{
		Name: img.Name, Digest: "sha256:" + id, KernelVersion: img.Metadata.Kernel.Release,
		Kernel: img.Path(image.KernelFile), Initrd: img.Path(image.InitrdFile), Root: img.Path(image.RootFile),
		MemoryMiB: img.Defaults.MemoryMiB, VCPUs: img.Defaults.VCPUs,
	}
	if img.Defaults.DiskMiB > 0 {
		out.Upper = img.Path(image.UpperFile)
	}
	for _, w := range img.Defaults.Warm {
		out.Warm = append(out.Warm, WarmStep{Language: w.Language, Code: w.Code})
	}
	return out, nil
}
