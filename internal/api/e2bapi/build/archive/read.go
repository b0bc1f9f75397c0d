package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
)

// Limits are the limits of an archive.
type Limits struct {
	Bytes   int64 // of all unpacked bytes, including headers and padding
	Entries int   // including parent folders without entries
	// Names limits the bytes of all names, both as read and as written by Rewrite. Zero means 32
	// MiB.
	Names int64
	// Unpacked is the number of bytes gzip may produce regardless of its input. Beyond it the ratio
	// is at most maxRatio. Zero means 512 MiB.
	Unpacked int64
}

func (l Limits) complete() Limits {
	if l.Names <= 0 {
		l.Names = 32 << 20
	}
	if l.Unpacked <= 0 {
		l.Unpacked = 512 << 20
	}
	return l
}

const (
	// maxRatio limits an archive's size to a multiple of its packed size. gzip reaches 1032. Source
	// code and logs have 5 to 15.
	maxRatio = 20
	// maxHeader limits the headers of one entry, including its PAX records, in bytes.
	maxHeader = 256 << 10
	// The headers of all entries may have headersBase bytes, plus headersEach for each entry.
	headersBase = 4 << 20
	headersEach = 2 << 10
	// A PAX record ends with a line feed and costs archive/tar much more than its bytes. The
	// headers of all entries may have linesBase line feeds, plus linesEach for each entry.
	linesBase = 64 << 10
	linesEach = 16
)

// Summary describes the content of an archive.
type Summary struct {
	Entries int   // without parent folders that have no entries
	Bytes   int64 // of files
	// Digest covers names, types, modes and contents, in any order. It excludes times and owners.
	// The same files have the same digest, however they were packed.
	Digest string
}

// gzipMagic begins a gzip file.
var gzipMagic = []byte{0x1f, 0x8b}

// source counts the packed bytes of an archive. It ends with the context. It fails with ErrBad if
// more than twice as many bytes go in as come out, because gzip can have empty blocks, which cost
// time.
type source struct {
	ctx context.Context
	r   io.Reader
	n   int64
	out *counted
}

// slack is the number of packed bytes that may be read ahead of unpacked bytes.
const slack = 1 << 20

func (s *source) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	if s.n > slack+2*s.out.n {
		return 0, fmt.Errorf("%w: %d packed bytes have only %d in them", ErrBad, s.n, s.out.n)
	}
	n, err := s.r.Read(p)
	s.n += int64(n)
	return n, err
}

// counted fails with ErrTooLarge when it has read more than the limit. It ends with the context.
type counted struct {
	r    io.Reader
	in   *source
	left int64
	n    int64
	free int64 // bytes without the ratio limit; negative: no ratio limit
	stop int64 // value of n at which the headers of an entry must have ended; 0: none
	// lines is the number of line feeds left for headers.
	lines int64
}

func (c *counted) Read(p []byte) (int, error) {
	switch {
	case c.in.ctx.Err() != nil:
		return 0, context.Cause(c.in.ctx)
	case c.left <= 0, c.stop > 0 && (c.n >= c.stop || c.lines < 0), c.free >= 0 && c.n > max(c.free, c.in.n*maxRatio):
		return 0, ErrTooLarge
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.r.Read(p)
	c.left, c.n = c.left-int64(n), c.n+int64(n)
	if c.stop > 0 {
		c.lines -= int64(bytes.Count(p[:n], []byte{'\n'}))
	}
	return n, err
}

// reader reads the entries of an archive.
type reader struct {
	tar     *tar.Reader
	in      *counted
	names   int64
	lim     Limits
	tree    *tree
	entries int
	bytes   int64
	buf     []byte // for copies
}

// open opens a tar file, which may be packed with gzip.
func open(ctx context.Context, r io.Reader, lim Limits) (*reader, error) {
	lim = lim.complete()
	c := &counted{left: lim.Bytes, lines: linesBase}
	packed := &source{ctx: ctx, r: r, out: c}
	in := bufio.NewReaderSize(packed, 64<<10)
	free := int64(-1)
	var plain io.Reader = in
	if head, err := in.Peek(len(gzipMagic)); err == nil && slices.Equal(head, gzipMagic) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBad, err)
		}
		plain, free = z, lim.Unpacked
	}
	c.r, c.in, c.free = plain, packed, free
	return &reader{tar: tar.NewReader(c), in: c, lim: lim, tree: newTree(lim.Entries), buf: make([]byte, 32<<10)}, nil
}

// next returns the next entry with a valid header, with its clean name. It returns io.EOF after the
// last entry.
func (r *reader) next() (*tar.Header, error) {
	// Unread content comes before the headers.
	if err := r.rest(); err != nil {
		return nil, err
	}
	const padding = 2 * 512
	r.in.stop = min(r.in.n+maxHeader, r.bytes+headersBase+headersEach*int64(r.entries)) + padding
	r.in.lines += linesEach
	h, err := r.tar.Next()
	r.in.stop = 0
	if err != nil {
		return nil, r.failed(err)
	}
	if r.entries++; r.entries > r.lim.Entries {
		return nil, fmt.Errorf("%w: more than %d entries", ErrTooLarge, r.lim.Entries)
	}
	if r.names += int64(len(h.Name)); r.names > r.lim.Names {
		return nil, fmt.Errorf("%w: its names have more than %d bytes", ErrTooLarge, r.lim.Names)
	}
	if h.Name, err = r.tree.check(h); err != nil {
		return nil, err
	}
	if h.Typeflag != tar.TypeReg {
		h.Size = 0
	}
	// Holes count as bytes too: one line of a sparse file can claim terabytes of them.
	if h.Size < 0 || h.Size > r.lim.Bytes-r.bytes {
		return nil, fmt.Errorf("%w: its files have more than %d bytes", ErrTooLarge, r.lim.Bytes)
	}
	r.bytes += h.Size
	return h, nil
}

// failed returns the error of a read. It keeps io.EOF, ErrTooLarge and the context's error, and
// wraps others in ErrBad.
func (r *reader) failed(err error) error {
	switch {
	case r.in.in.ctx.Err() != nil:
		return context.Cause(r.in.in.ctx)
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, ErrTooLarge):
		return err
	}
	return fmt.Errorf("%w: %w", ErrBad, err)
}

// rest skips the unread content.
func (r *reader) rest() error {
	if _, err := io.Copy(io.Discard, r.tar); err != nil {
		return r.failed(err)
	}
	return nil
}

// content copies the file of the entry returned by next. It returns ErrBad or ErrTooLarge for the
// archive, and errors of w unchanged.
func (r *reader) content(w io.Writer, size int64) error {
	if size == 0 {
		return nil
	}
	out := &target{w: w}
	n, err := io.CopyBuffer(out, struct{ io.Reader }{r.tar}, r.buf)
	switch {
	case out.err != nil:
		return out.err
	case err != nil:
		return r.failed(err)
	case n != size:
		return fmt.Errorf("%w: a file has %d bytes, not %d", ErrBad, n, size)
	}
	return nil
}

// target distinguishes errors of a writer from errors of an archive.
type target struct {
	w   io.Writer
	err error
}

func (t *target) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	t.err = err
	return n, err
}

// Scan reads a whole archive and returns its summary. It ends early with the context.
func Scan(ctx context.Context, in io.Reader, lim Limits) (Summary, error) {
	r, err := open(ctx, in, lim)
	if err != nil {
		return Summary{}, err
	}
	var sums [][sha256.Size]byte
	sum := sha256.New()
	for {
		h, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Summary{}, err
		}
		sum.Reset()
		describe(sum, h)
		if h.Typeflag == tar.TypeReg {
			if err := r.content(sum, h.Size); err != nil {
				return Summary{}, err
			}
		}
		sums = append(sums, [sha256.Size]byte(sum.Sum(nil)))
	}
	slices.SortFunc(sums, func(a, b [sha256.Size]byte) int { return bytes.Compare(a[:], b[:]) })
	all := sha256.New()
	for _, s := range slices.Compact(sums) {
		all.Write(s[:])
	}
	return Summary{Entries: r.entries, Bytes: r.bytes, Digest: hex.EncodeToString(all.Sum(nil))}, nil
}

// describe hashes the relevant fields of a header.
func describe(sum hash.Hash, h *tar.Header) {
	var b []byte
	for _, s := range []string{string(h.Typeflag), h.Name, h.Linkname} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Mode&0o7777))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Size))
	sum.Write(b)
}
