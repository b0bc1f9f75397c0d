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

// Limits bound an archive.
type Limits struct {
	Bytes   int64 // of all that comes out of it, headers and padding with it
	Entries int   // with the folders above them that have no entries of their own
	// Names limits the bytes of all names, as they are and as Rewrite writes them. Zero: 32 MiB.
	Names int64
	// Unpacked is the number of bytes that may come out of gzip whatever went in. Beyond it the
	// ratio is at most maxRatio. Zero: 512 MiB.
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
	// maxRatio limits an archive's size to a multiple of its packed size. gzip reaches 1032; source
	// code and logs have 5 to 15.
	maxRatio = 20
	// maxHeader bounds the headers of one entry, with its PAX records.
	maxHeader = 256 << 10
	// Headers of all entries have headersBase bytes, and headersEach more for each entry.
	headersBase = 4 << 20
	headersEach = 2 << 10
	// A PAX record ends with a line feed and costs archive/tar much more than its bytes. Headers of
	// all entries have linesBase line feeds, and linesEach more for each entry.
	linesBase = 64 << 10
	linesEach = 16
)

// Summary is what is in an archive.
type Summary struct {
	Entries int
	Bytes   int64 // of files
	// Digest is of names, kinds, modes and contents, in any order, and of no times and owners: the
	// same files give the same digest, however they were packed.
	Digest string
}

// gzipMagic begins a file of gzip's.
var gzipMagic = []byte{0x1f, 0x8b}

// source counts the packed bytes of an archive. It ends with the context, and with ErrBad when
// more than twice as many bytes go in as come out: gzip can be empty blocks, which cost time.
type source struct {
	ctx context.Context
	r   io.Reader
	n   int64
	out *counted
}

// slack is the number of packed bytes that may be read ahead of those that come out.
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

// counted ends with ErrTooLarge when more was read than there may be, and with the context.
type counted struct {
	r    io.Reader
	in   *source
	left int64
	n    int64
	free int64 // bytes to which the ratio does not apply; negative: it never does
	stop int64 // value of n at which the headers of an entry must have ended; 0: none
	// lines is the number of line feeds that headers may still have.
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

// reader goes through the entries of an archive.
type reader struct {
	tar     *tar.Reader
	in      *counted
	names   int64
	lim     Limits
	tree    *tree
	entries int
	bytes   int64
	buf     []byte // of copies
}

// open takes a tar, or one that gzip has packed.
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

// next is the next entry whose header is as it should be, with its clean name; io.EOF after the last.
func (r *reader) next() (*tar.Header, error) {
	// Content that was not read comes before the headers.
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
	// Holes are bytes too: a sparse file says in a line that it has terabytes of them.
	if h.Size < 0 || h.Size > r.lim.Bytes-r.bytes {
		return nil, fmt.Errorf("%w: its files have more than %d bytes", ErrTooLarge, r.lim.Bytes)
	}
	r.bytes += h.Size
	return h, nil
}

// failed returns the error of a read: io.EOF, ErrTooLarge and the context's as they are, others as ErrBad.
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

// rest skips the content that was not read.
func (r *reader) rest() error {
	if _, err := io.Copy(io.Discard, r.tar); err != nil {
		return r.failed(err)
	}
	return nil
}

// content is the file of the entry that next gave. Errors are ErrBad's and ErrTooLarge's, and
// those of w as they are.
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

// target tells errors of a writer from those of an archive.
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

// describe hashes what of a header counts.
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
