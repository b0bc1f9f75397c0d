package treetar

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// Target creates files in one directory. A name is a single name, and never empty, "." or "..".
// Times and modes are set where the system allows it.
type Target interface {
	// Dir creates or opens a directory. Finish sets its mode and time when it is complete.
	Dir(name string, m Meta) (Target, error)
	// File creates a file. It replaces an existing file only after all content has arrived.
	File(name string, m Meta, c *Content) error
	// SymLink creates a link. It may replace an existing link.
	SymLink(name, text string, m Meta) error
	// HardLink gives a file of the tree another name. first is the file's path in the tree, as
	// names. No link may be followed on that path.
	HardLink(name string, first []string) error
	// Finish completes a directory returned by Dir.
	Finish(m Meta) error
}

// Bounds limits a tree. Zero means no limit.
type Bounds struct {
	Depth   int // of directories
	Entries int // files, directories and links
}

// ErrBroken is the error for a stream that ends before its last entry: the sender stopped, or the
// connection broke.
var ErrBroken = errors.New("the stream broke off")

// ErrFormat is the error for a stream that Pack does not write.
var ErrFormat = errors.New("the stream is not one of forkd's")

// SenderError is a sender's report of a file it could not read.
type SenderError struct {
	Text guesttext.Text // the text of the error
}

func (e *SenderError) Error() string { return e.Text.String() }

// Unpack creates in parent, under the name base, the tree from r. It reports failures to tally and
// continues, but returns the error if the tree itself cannot be created. If the stream ends before
// all content of a file, the Target must remove the file.
func Unpack(ctx context.Context, r io.Reader, parent Target, base string, bounds Bounds, tally Tally) error {
	u := &unpacker{ctx: ctx, in: tar.NewReader(bufio.NewReaderSize(r, 64<<10)), bounds: bounds, tally: tally}
	err := u.run(parent, base)
	return errors.Join(err, u.leave(0))
}

// unpacker reads one stream.
type unpacker struct {
	ctx     context.Context
	in      *tar.Reader
	bounds  Bounds
	tally   Tally
	above   []level
	entries int
	ahead   *tar.Header // read while looking for a file's next piece
}

// level is a directory that contains the current entry.
type level struct {
	name string
	to   Target // nil if the directory could not be created; its contents are skipped
	meta Meta
}

func (u *unpacker) run(parent Target, base string) error {
	h, err := u.next()
	if err != nil {
		return err
	}
	if h.Name != rootName {
		return violation("it begins with %s", guesttext.Of(h.Name))
	}
	if err := u.root(h, parent, base); err != nil {
		return err
	}
	for {
		h, err := u.next()
		if err != nil {
			return err
		}
		if h.PAXRecords[recordNote] == noteEnd {
			if text := h.PAXRecords[recordText]; text != "" {
				return &SenderError{guesttext.Lines(text)}
			}
			return nil
		}
		if u.entries++; u.bounds.Entries > 0 && u.entries > u.bounds.Entries {
			return fmt.Errorf("the tree has more than %d files, links and directories", u.bounds.Entries)
		}
		if err := u.entry(h); err != nil {
			return err
		}
	}
}

// violation returns an error for a stream that our packer does not write.
func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf(format, args...))
}

// next reads a header and checks it.
func (u *unpacker) next() (*tar.Header, error) {
	if h := u.ahead; h != nil {
		u.ahead = nil
		return h, nil
	}
	if err := u.ctx.Err(); err != nil {
		return nil, err
	}
	h, err := u.in.Next()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, ErrBroken
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong), errors.Is(err, tar.ErrInsecurePath):
		return nil, violation("%w", err)
	case err != nil:
		return nil, err
	}
	if h.Typeflag == tar.TypeDir {
		h.Name = strings.TrimSuffix(h.Name, "/")
	}
	switch {
	case !isName(h.Name):
		return nil, violation("it has the path %s", guesttext.Of(h.Name))
	case h.Size < 0 || h.Size > maxPiece || h.Size > 0 && h.Typeflag != tar.TypeReg:
		return nil, violation("%s has a piece of %d bytes", guesttext.Of(h.Name), h.Size)
	case len(h.PAXRecords) > maxRecords: // each costs archive/tar more than its bytes
		return nil, violation("%s has %d records", guesttext.Of(h.Name), len(h.PAXRecords))
	case len(h.Linkname) > maxName || strings.IndexByte(h.Linkname, 0) >= 0:
		return nil, violation("%s has a link's text of %d bytes", guesttext.Of(h.Name), len(h.Linkname))
	}
	return h, nil
}

// root creates the tree itself. If this fails, the copy fails.
func (u *unpacker) root(h *tar.Header, parent Target, base string) error {
	switch {
	case h.PAXRecords[recordNote] != "":
		return &SenderError{guesttext.Of(h.PAXRecords[recordText])}
	case h.Typeflag == tar.TypeDir:
		dir, err := parent.Dir(base, metaOf(h))
		if err != nil {
			return err
		}
		u.above = []level{{rootName, dir, metaOf(h)}}
	case h.Typeflag == tar.TypeReg:
		c := &Content{u: u, name: rootName, piece: h}
		if err := parent.File(base, metaOf(h), c); err != nil || c.err != nil {
			return cmp.Or(c.err, err)
		}
	default:
		return violation("it begins with an entry of kind %q", h.Typeflag)
	}
	u.tally.copied()
	return nil
}

func (u *unpacker) entry(h *tar.Header) error {
	if h.PAXRecords[recordNote] != "" {
		return u.note(h)
	}
	dir, err := u.enter(h.Name)
	if err != nil {
		return err
	}
	name := path.Base(h.Name)
	switch h.Typeflag {
	case tar.TypeDir:
		return u.dir(dir, name, h)
	case tar.TypeReg:
		c := &Content{u: u, name: h.Name, piece: h}
		if dir == nil {
			return c.skip()
		}
		err := dir.File(name, metaOf(h), c)
		if c.err != nil {
			return c.err // the stream is unusable
		}
		return errors.Join(u.took(h.Name, err), c.skip())
	case tar.TypeSymlink:
		if dir == nil {
			return nil
		}
		if h.Linkname == "" {
			return violation("%s is a link without a text", guesttext.Of(h.Name))
		}
		return u.took(h.Name, dir.SymLink(name, h.Linkname, metaOf(h)))
	case tar.TypeLink:
		if h.Linkname == rootName || !isName(h.Linkname) {
			return violation("%s is another name of %s", guesttext.Of(h.Name), guesttext.Of(h.Linkname))
		}
		if dir == nil {
			return nil
		}
		return u.took(h.Name, dir.HardLink(name, strings.Split(h.Linkname, "/")))
	}
	return violation("%s is of kind %q", guesttext.Of(h.Name), h.Typeflag)
}

// enter leaves all directories that do not contain name. It returns the directory that contains it,
// or nil if it could not be created.
func (u *unpacker) enter(name string) (Target, error) {
	in := path.Dir(name)
	at := len(u.above) - 1
	for at >= 0 && u.above[at].name != in {
		at--
	}
	if at < 0 || name == rootName {
		return nil, violation("%s is in no directory of those before it", guesttext.Of(name))
	}
	to := u.above[at].to
	return to, u.leave(at + 1)
}

// leave completes the directories from level n on.
func (u *unpacker) leave(n int) error {
	for len(u.above) > n {
		last := u.above[len(u.above)-1]
		u.above = u.above[:len(u.above)-1]
		if last.to == nil {
			continue
		}
		if err := last.to.Finish(last.meta); err != nil {
			if err := u.tally.failed(last.name, err); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *unpacker) dir(in Target, name string, h *tar.Header) error {
	var sub Target
	if in != nil {
		err := error(nil)
		if u.bounds.Depth > 0 && len(u.above) > u.bounds.Depth {
			err = fmt.Errorf("directories are nested more than %d deep", u.bounds.Depth)
		} else {
			sub, err = in.Dir(name, metaOf(h))
		}
		if err != nil {
			sub = nil
		}
		if err := u.took(h.Name, err); err != nil {
			return err
		}
	}
	u.above = append(u.above, level{h.Name, sub, metaOf(h)})
	return nil
}

// took records the result for one part. If it returns an error, the copy ends.
func (u *unpacker) took(name string, err error) error {
	if err != nil {
		return u.tally.failed(name, err)
	}
	u.tally.copied()
	return nil
}

// note reads a note about a file that was not sent.
func (u *unpacker) note(h *tar.Header) error {
	text := h.PAXRecords[recordText]
	switch kind := h.PAXRecords[recordNote]; kind {
	case noteSkipped:
		u.tally.skipped(h.Name, guesttext.Of(text).String())
		return nil
	case noteFailed:
		return u.tally.failed(h.Name, &SenderError{guesttext.Of(text)})
	default:
		return violation("%s has a note %s", guesttext.Of(h.Name), guesttext.Of(kind))
	}
}

// metaOf returns a file's metadata. It drops bits other than permissions.
func metaOf(h *tar.Header) Meta {
	m := Meta{Mode: fs.FileMode(h.Mode & 0o777), ModTime: h.ModTime}
	first, last := time.Unix(0, math.MinInt64), time.Unix(0, math.MaxInt64)
	if m.ModTime.Before(first) || m.ModTime.After(last) { // their nanoseconds do not fit
		m.ModTime = time.Time{}
	}
	return m
}

// Content is the content of one file in a stream.
type Content struct {
	u     *unpacker
	name  string
	piece *tar.Header // the next piece; nil after the last
	end   int64       // end of the previous pieces
	err   error       // of the stream, or from a note in place of the rest
}

// Output is the destination of a file's content: an *os.File.
type Output interface {
	io.WriteSeeker
	Truncate(size int64) error
}

// WriteTo writes the content to an empty file. It does not write holes.
func (c *Content) WriteTo(f Output) error {
	for c.piece != nil {
		at, err := c.offset()
		if err != nil {
			return err
		}
		if at > c.end {
			if _, err := f.Seek(at, io.SeekStart); err != nil {
				return err
			}
		}
		n, last := c.piece.Size, c.piece.PAXRecords[recordMore] == ""
		if err := c.write(f, n); err != nil {
			return err
		}
		if last && n == 0 && at > c.end { // the file ends with a hole
			if err := f.Truncate(at); err != nil {
				return err
			}
		}
		c.end = at + n
		if err := c.following(); err != nil {
			return err
		}
	}
	return nil
}

// offset returns the offset of the next piece in the file.
func (c *Content) offset() (int64, error) {
	text := c.piece.PAXRecords[recordAt]
	if text == "" {
		text = strconv.FormatInt(c.end, 10)
	}
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil || at < c.end || at > maxSize {
		c.err = violation("%s has a piece at %s, after %d bytes", guesttext.Of(c.name), guesttext.Of(text), c.end)
		return 0, c.err
	}
	return at, nil
}

// write copies n bytes. It distinguishes an error of the stream from one of the file.
func (c *Content) write(f io.Writer, n int64) error {
	in := &reading{r: c.u.in, tally: c.u.tally}
	_, err := io.CopyN(f, in, n)
	if in.err != nil {
		c.err = broken(in.err)
		return c.err
	}
	return err
}

// broken returns the error for a failed read of content.
func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrBroken
	}
	return err
}

// reading stores an error of the stream.
type reading struct {
	r     io.Reader
	tally Tally
	err   error
}

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		r.tally.progress(n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// following reads the header of the next piece, if there is one.
func (c *Content) following() error {
	more := c.piece.PAXRecords[recordMore] != ""
	c.piece = nil
	if !more {
		return nil
	}
	h, err := c.u.next()
	if err != nil {
		c.err = err
		return err
	}
	note := h.PAXRecords[recordNote]
	switch {
	case h.Name == c.name && note == noteFailed:
		return &SenderError{guesttext.Of(h.PAXRecords[recordText])}
	case h.Name != c.name || note != "" || h.Typeflag != tar.TypeReg:
		c.err = violation("%s is where a piece of %s should be", guesttext.Of(h.Name), guesttext.Of(c.name))
		return c.err
	}
	c.piece = h
	return nil
}

// skip reads over the rest of a file that was not written.
func (c *Content) skip() error {
	for c.piece != nil && c.err == nil {
		if err := c.following(); err != nil && c.err == nil {
			return nil // an error of the sender: the file has already failed
		}
	}
	return c.err
}
