package op

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/vm/boot/bzimage"
)

// setupMagic is where a bzImage says that it is one (Documentation/arch/x86/boot.rst, field "header").
const setupMagic = 0x202

// openKernel opens a kernel for the VMM, which loads ELF files only. A
// distribution's bzImage is unpacked into a file without a name; what is
// neither is left for the VMM to refuse.
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

// unnamed holds bytes in a file of the run directory that is gone when it is closed.
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
