package archive

import (
	"archive/tar"
	"bufio"
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
	Entries int
	// Names is the number of bytes of all names, which are kept while the archive is read. Zero: 64 MiB.
	Names int64
	// Unpacked is the number of bytes that may come out of gzip whatever went in. Beyond it the
	// ratio is at most maxRatio. Zero: 64 MiB.
	Unpacked int64
}

func (l Limits) complete() Limits {
	if l.Names <= 0 {
		l.Names = 64 << 20
	}
	if l.Unpacked <= 0 {
		l.Unpacked = 64 << 20
	}
	return l
}

const (
	// maxRatio is how many times larger than its packed form an archive may be. gzip reaches 1032.
	maxRatio = 200
	// maxHeader bounds the headers of one entry, with its PAX records.
	maxHeader = 256 << 10
	// Headers of all entries have headersBase bytes, and headersEach more for each entry.
	headersBase = 4 << 20
	headersEach = 4 << 10
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

// source counts the packed bytes of an archive. It ends with the context.
type source struct {
	ctx context.Context
	r   io.Reader
	n   int64
}

func (s *source) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
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
}

func (c *counted) Read(p []byte) (int, error) {
	switch {
	case c.in.ctx.Err() != nil:
		return 0, context.Cause(c.in.ctx)
	case c.left <= 0, c.stop > 0 && c.n >= c.stop, c.free >= 0 && c.n > max(c.free, c.in.n*maxRatio):
		return 0, ErrTooLarge
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.r.Read(p)
	c.left, c.n = c.left-int64(n), c.n+int64(n)
	return n, err
}

// reader goes through the entries of an archive.
type reader struct {
	tar     *tar.Reader
	in      *counted
	names   int64
	lim     Limits
	tree    tree
	entries int
	bytes   int64
	ends    int64 // value of in.n where the content of the entry ends
}

// open takes a tar, or one that gzip has packed.
func open(ctx context.Context, r io.Reader, lim Limits) (*reader, error) {
	lim = lim.complete()
	packed := &source{ctx: ctx, r: r}
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
	c := &counted{r: plain, in: packed, left: lim.Bytes, free: free}
	return &reader{tar: tar.NewReader(c), in: c, lim: lim, tree: tree{}}, nil
}

// next is the next entry whose header is as it should be, with its clean name; io.EOF after the last.
func (r *reader) next() (*tar.Header, error) {
	// Content that was not read comes before the headers, with its padding.
	const padding = 2 * 512
	start := max(r.in.n, r.ends)
	r.in.stop = min(start+maxHeader, r.bytes+headersBase+headersEach*int64(r.entries)) + padding
	h, err := r.tar.Next()
	r.in.stop = 0
	switch {
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case r.in.in.ctx.Err() != nil:
		return nil, context.Cause(r.in.in.ctx)
	case errors.Is(err, ErrTooLarge):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrBad, err)
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
	r.ends = r.in.n + h.Size
	return h, nil
}

// content is the file of the entry that next gave. Errors are ErrBad's and ErrTooLarge's, and
// those of w as they are.
func (r *reader) content(w io.Writer, size int64) error {
	out := &target{w: w}
	n, err := io.Copy(out, r.tar)
	switch {
	case out.err != nil:
		return out.err
	case r.in.in.ctx.Err() != nil:
		return context.Cause(r.in.in.ctx)
	case errors.Is(err, ErrTooLarge):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", ErrBad, err)
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
	var sums [][]byte
	for {
		h, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Summary{}, err
		}
		sum := sha256.New()
		describe(sum, h)
		if h.Typeflag == tar.TypeReg {
			if err := r.content(sum, h.Size); err != nil {
				return Summary{}, err
			}
		}
		sums = append(sums, sum.Sum(nil))
	}
	slices.SortFunc(sums, slices.Compare)
	all := sha256.New()
	for _, s := range slices.CompactFunc(sums, slices.Equal) {
		all.Write(s)
	}
	return Summary{Entries: r.entries, Bytes: r.bytes, Digest: hex.EncodeToString(all.Sum(nil))}, nil
}

// describe hashes what of a header counts.
func describe(sum hash.Hash, h *tar.Header) {
	for _, s := range []string{string(h.Typeflag), h.Name, h.Linkname} {
		_ = binary.Write(sum, binary.LittleEndian, uint32(len(s)))
		_, _ = io.WriteString(sum, s)
	}
	_ = binary.Write(sum, binary.LittleEndian, h.Mode&0o7777)
	_ = binary.Write(sum, binary.LittleEndian, h.Size)
}
