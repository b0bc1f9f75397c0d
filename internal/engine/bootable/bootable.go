package bootable

import (
	"context"
	"errors"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/images/image"
)

// Images returns the images of a store.
func Images(s *image.Store) sandbox.Images { return images{s} }

type images struct{ store *image.Store }

func (s images) Image(_ context.Context, name string) (sandbox.Image, error) {
	img, err := s.store.Get(name)
	switch {
	case errors.Is(err, image.ErrNotFound):
		return sandbox.Image{}, sandbox.Errorf(sandbox.ErrNotFound, sandbox.ReasonImageNotFound, "%w", err)
	case errors.Is(err, image.ErrName):
		return sandbox.Image{}, sandbox.Errorf(sandbox.ErrInvalid, "", "%w", err)
	case errors.Is(err, image.ErrDamaged):
		return sandbox.Image{}, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonImageDamaged, "%w", err)
	case err != nil:
		return sandbox.Image{}, err
	}
	id, err := img.ID()
	if err != nil {
		return sandbox.Image{}, err
	}
	out := sandbox.Image{
		Name: img.Name, Digest: "sha256:" + id, KernelVersion: img.Metadata.Kernel.Release,
		Kernel: img.Path(image.KernelFile), Initrd: img.Path(image.InitrdFile), Root: img.Path(image.RootFile),
		MemoryMiB: img.Defaults.MemoryMiB, VCPUs: img.Defaults.VCPUs,
	}
	if img.Defaults.DiskMiB > 0 {
		out.Upper = img.Path(image.UpperFile)
	}
	out.Start, out.FirstUse = img.Defaults.Start, img.Defaults.FirstUse
	if r := img.Defaults.Ready; r != nil {
		out.Ready = &sandbox.Ready{Port: r.Port, Command: r.Command, Timeout: r.Timeout()}
		if r.Log != nil {
			out.Ready.LogFile, out.Ready.LogText = r.Log.File, r.Log.Text
		}
	}
	for _, w := range img.Defaults.Warm {
		out.Warm = append(out.Warm, sandbox.WarmStep{Language: w.Language, Code: w.Code})
	}
	return out, nil
}
