package ociimage

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/forkd/forkd/internal/leaf/ctxio"
)

// maxWindow limits the memory of a zstd decoder, in bytes.
const maxWindow = 128 << 20

func digestOf(b []byte) v1.Hash {
	s := sha256.Sum256(b)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(s[:])}
}

// meter counts and hashes the bytes that it reads.
type meter struct {
	r    io.Reader
	hash hash.Hash
	n    int64
	max  func() int64 // limit of n
	what string
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.n += int64(n)
	m.hash.Write(p[:n])
	if limit := m.max(); m.n > limit {
		return 0, invalid("%s has more than %d bytes", m.what, limit)
	}
	return n, err
}

func (m *meter) digest() string { return hex.EncodeToString(m.hash.Sum(nil)) }

// stream is the tar of a layer. Its end is an error unless both digests are right.
type stream struct {
	layer        layer
	packed, data *meter
	closers      []func() error
}

// openStream opens a layer. unpacked is the number of bytes that it may have after decompression.
func openStream(ctx context.Context, l layer, limits Limits, unpacked int64) (*stream, error) {
	file, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	s := &stream{layer: l, closers: []func() error{file.Close}}
	size := func() int64 { return limits.Compressed }
	if l.size >= 0 {
		size = func() int64 { return l.size }
	}
	s.packed = &meter{r: ctxio.Reader(ctx, file), hash: sha256.New(), max: size, what: "the compressed layer"}
	plain, end, err := decompress(s.packed)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.closers = append(s.closers, end)
	s.data = &meter{r: plain, hash: sha256.New(), what: "the unpacked layer", max: func() int64 {
		// s.packed.n includes a buffer that is not decompressed yet. This is small beside the slack.
		return min(unpacked, max(limits.Slack, s.packed.n*limits.Ratio))
	}}
	return s, nil
}

// decompress finds the compression from the first bytes.
func decompress(r io.Reader) (io.Reader, func() error, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, err := b.Peek(4)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	nothing := func() error { return nil }
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, nil, invalid("gzip: %w", err)
		}
		return z, z.Close, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, invalid("zstd: %w", err)
		}
		return z, func() error { z.Close(); return nil }, nil
	case bytes.HasPrefix(magic, []byte("BZh")):
		return bzip2.NewReader(b), nothing, nil
	}
	return b, nothing, nil
}

// finish reads the rest of the layer, and compares sizes and digests.
func (s *stream) finish() error {
	if _, err := io.Copy(io.Discard, s.data); err != nil {
		return unpackError(err)
	}
	if _, err := io.Copy(io.Discard, s.packed); err != nil {
		return unpackError(err)
	}
	l := s.layer
	switch {
	case l.size >= 0 && s.packed.n != l.size:
		return invalid("the layer has %d bytes, not %d", s.packed.n, l.size)
	case l.digest.Hex != "" && s.packed.digest() != l.digest.Hex:
		return invalid("the layer has the digest sha256:%s, not %s", s.packed.digest(), l.digest)
	case s.data.digest() != l.diffID.Hex:
		return invalid("the unpacked layer has the digest sha256:%s, not %s", s.data.digest(), l.diffID)
	}
	return nil
}

// unpackError adds ErrInvalid to errors of decompressors.
func unpackError(err error) error {
	var path *os.PathError
	switch {
	case errors.Is(err, ErrInvalid), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &path):
		return err
	}
	return fmt.Errorf("%w: unpack: %w", ErrInvalid, err)
}

func (s *stream) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	return errors.Join(errs...)
}

// unpackWhole replaces a compressed file by an unpacked copy without a name, so that parts of it can be read.
func unpackWhole(ctx context.Context, f *os.File, tmp string, limits Limits) (_ *os.File, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	var magic [4]byte
	if _, err := f.ReadAt(magic[:], 0); err != nil && err != io.EOF {
		return nil, err
	}
	most := func() int64 { return limits.Compressed }
	packed := &meter{r: ctxio.Reader(ctx, f), hash: sha256.New(), max: most, what: "the file"}
	plain, end, err := decompress(packed)
	if err != nil {
		return nil, err
	}
	if _, same := plain.(*bufio.Reader); same {
		_, err := f.Seek(0, io.SeekStart)
		return f, err
	}
	out, err := os.CreateTemp(tmp, "unpacked-")
	if err != nil {
		return nil, err
	}
	limited := &meter{r: plain, hash: sha256.New(), what: "the unpacked file", max: func() int64 {
		return min(limits.Unpacked, max(limits.Slack, packed.n*limits.Ratio))
	}}
	_, err = io.Copy(out, limited)
	if err == nil {
		_, err = out.Seek(0, io.SeekStart)
	}
	if err = errors.Join(err, os.Remove(out.Name()), end()); err != nil {
		return nil, errors.Join(unpackError(err), out.Close())
	}
	return out, f.Close()
}
