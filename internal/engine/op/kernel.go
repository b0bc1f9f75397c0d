package op

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/vm/boot/bzimage"
)

// setupMagic is the offset of the magic number of a bzImage (Documentation/arch/x86/boot.rst, field
// "header").
const setupMagic = 0x202

// openKernel opens a kernel for the VMM, which loads ELF files only. It unpacks a distribution's
// bzImage into an unnamed file. It returns any other file unchanged, for the VMM to refuse if it is
// not ELF.
func (o *Ops) openKernel(ctx context.Context, path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	var magic [4]byte
	if _, err := f.ReadAt(magic[:], setupMagic); err != nil || string(magic[:]) != "HdrS" {
		return f, nil
	}
	defer f.Close()
	image, err := io.ReadAll(io.LimitReader(f, bzimage.MaxKernel))
	if err != nil {
		return nil, err
	}
	vmlinux, err := bzimage.Extract(ctx, path, image)
	if ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		return nil, sandbox.Errorf(sandbox.ErrBootFailed, sandbox.ReasonKernelUnusable, "%w", err)
	}
	return o.unnamed(vmlinux)
}

// unnamed writes bytes to an unnamed file in the run directory. The file is gone once it is closed.
func (o *Ops) unnamed(b []byte) (*os.File, error) {
	f, err := os.CreateTemp(o.cfg.RunDir, "kernel-")
	if err != nil {
		return nil, err
	}
	os.Remove(f.Name())
	if _, err := f.Write(b); err != nil {
		f.Close()
		return nil, fmt.Errorf("unpack kernel: %w", err)
	}
	return f, nil
}
