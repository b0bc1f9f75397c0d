package archive

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
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
}

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

// counted ends with ErrTooLarge when more was read than there may be.
type counted struct {
	r    io.Reader
	left int64
}

func (c *counted) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, ErrTooLarge
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.r.Read(p)
	c.left -= int64(n)
	return n, err
}

// reader goes through the entries of an archive.
type reader struct {
	tar     *tar.Reader
	lim     Limits
	tree    tree
	entries int
	bytes   int64
}

// open takes a tar, or one that gzip has packed.
func open(r io.Reader, lim Limits) (*reader, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	var plain io.Reader = in
	if head, err := in.Peek(len(gzipMagic)); err == nil && slices.Equal(head, gzipMagic) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBad, err)
		}
		plain = z
	}
	return &reader{tar: tar.NewReader(&counted{plain, lim.Bytes}), lim: lim, tree: tree{}}, nil
}

// next is the next entry whose header is as it should be, with its clean name; io.EOF after the last.
func (r *reader) next() (*tar.Header, error) {
	h, err := r.tar.Next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case errors.Is(err, ErrTooLarge):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrBad, err)
	}
	if r.entries++; r.entries > r.lim.Entries {
		return nil, fmt.Errorf("%w: more than %d entries", ErrTooLarge, r.lim.Entries)
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

// content is the file of the entry that next gave. Errors are ErrBad's and ErrTooLarge's, and
// those of w as they are.
func (r *reader) content(w io.Writer, size int64) error {
	out := &target{w: w}
	n, err := io.Copy(out, r.tar)
	switch {
	case out.err != nil:
		return out.err
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

// Scan reads a whole archive and says what is in it.
func Scan(in io.Reader, lim Limits) (Summary, error) {
	r, err := open(in, lim)
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
