package bzimage

import (
	"bytes"
	"compress/bzip2"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/forkd/forkd/internal/leaf/ctxio"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// MaxKernel is the largest vmlinux unpacked by Extract, in bytes. Debian's is about 60 MiB; a file
// unpacking to more is damaged or hostile.
const MaxKernel = 256 << 20

// ErrNotKernel is wrapped by every error about an unusable file.
var ErrNotKernel = errors.New("not a Linux kernel for x86-64")

// Extract returns the vmlinux ELF of a kernel file: a bzImage, or an ELF as it is. name is used
// only in errors. The result may alias image. Extract stops early when ctx ends.
func Extract(ctx context.Context, name string, image []byte) ([]byte, error) {
	elf, err := extract(ctx, image)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("%s is %w: %w", name, ErrNotKernel, err)
	}
	return elf, nil
}

func extract(ctx context.Context, image []byte) ([]byte, error) {
	if bytes.HasPrefix(image, elfMagic) {
		return checkELF(image)
	}
	packed, err := payload(image)
	if err != nil {
		return nil, err
	}
	elf, err := unpack(ctx, packed)
	if err != nil {
		return nil, err
	}
	return checkELF(elf)
}

// opener opens a payload of want unpacked bytes, or of any number if want is -1.
type opener func(ctx context.Context, packed []byte, want int64) (io.Reader, error)

// formats are the compressions of kernels. LZMA and LZO, which no current distribution uses, are
// recognised only to be named in errors.
var formats = []struct {
	name, magic string
	open        opener
}{
	{"gzip", "\x1f\x8b", openGzip},
	{"zstd", "\x28\xb5\x2f\xfd", openZstd},
	{"xz", "\xfd7zXZ\x00", openXZ},
	{"lz4", "\x02\x21\x4c\x18", openLZ4},
	{"bzip2", "BZh", openBzip2},
	{"lzma", "\x5d\x00\x00", nil},
	{"lzo", "\x89LZO", nil},
}

func unpack(ctx context.Context, packed []byte) ([]byte, error) {
	if bytes.HasPrefix(packed, elfMagic) {
		return packed, nil
	}
	for _, f := range formats {
		if !bytes.HasPrefix(packed, []byte(f.magic)) {
			continue
		}
		if f.open == nil {
			return nil, fmt.Errorf("its payload is compressed with %s, which is not supported", f.name)
		}
		if f.name == "gzip" { // its own trailer has the size
			return inflate(ctx, f.name, f.open, packed, -1)
		}
		// All others have the unpacked size appended by the kernel's build.
		end := len(packed) - 4
		if end < len(f.magic) {
			return nil, fmt.Errorf("its %s payload is only %d bytes", f.name, len(packed))
		}
		return inflate(ctx, f.name, f.open, packed[:end], int64(binary.LittleEndian.Uint32(packed[end:])))
	}
	return nil, fmt.Errorf("its payload has an unknown compression (begins with % x)", packed[:min(len(packed), 6)])
}

// inflate unpacks exactly want bytes, or any number if want is -1.
func inflate(ctx context.Context, name string, open opener, packed []byte, want int64) ([]byte, error) {
	if want > MaxKernel {
		return nil, fmt.Errorf("its %s payload claims to unpack to %d MiB, more than %d", name, want>>20, MaxKernel>>20)
	}
	r, err := open(ctx, packed, want)
	if err != nil {
		return nil, fmt.Errorf("unpack %s payload: %w", name, err)
	}
	if c, ok := r.(io.Closer); ok {
		defer c.Close()
	}
	limit := int64(MaxKernel)
	if want >= 0 {
		limit = want
	}
	var out bytes.Buffer
	// Kernels shrink by less than a factor of eight, so a false size does not get its memory in
	// advance.
	out.Grow(int(min(limit, int64(len(packed))*8)))
	n, err := io.Copy(&out, io.LimitReader(ctxio.Reader(ctx, r), limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("unpack %s payload: %w", name, err)
	case n > limit:
		return nil, fmt.Errorf("unpack %s payload: more than %d bytes come out", name, limit)
	case want >= 0 && n < want:
		return nil, fmt.Errorf("unpack %s payload: %d bytes come out, not %d", name, n, want)
	}
	return out.Bytes(), nil
}

func openGzip(_ context.Context, packed []byte, _ int64) (io.Reader, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	z.Multistream(false)
	return z, nil
}

func openZstd(_ context.Context, packed []byte, _ int64) (io.Reader, error) {
	// Kernels are packed with windows of up to 128 MiB (zstd -22 --ultra).
	d, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(128<<20), zstd.WithDecoderMaxMemory(MaxKernel))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

func openLZ4(_ context.Context, packed []byte, _ int64) (io.Reader, error) {
	return lz4.NewReader(bytes.NewReader(packed)), nil
}

func openBzip2(_ context.Context, packed []byte, _ int64) (io.Reader, error) {
	return bzip2.NewReader(bytes.NewReader(packed)), nil
}
