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

// Target makes files in one directory. A name is one name, and neither empty nor "." nor "..". Times and modes are
// set where the system allows.
type Target interface {
	// Dir makes or opens a directory. Finish gives it its mode and time once it is full.
	Dir(name string, m Meta) (Target, error)
	// File makes a file, or replaces it when all of its content has come.
	File(name string, m Meta, c *Content) error
	// SymLink makes a link in place of nothing or of another one.
	SymLink(name, text string, m Meta) error
	// HardLink gives a file of the tree another name. first is its path in the tree: names, none of which may be
	// taken for what a link leads to.
	HardLink(name string, first []string) error
	// Finish ends the work in a directory that Dir returned.
	Finish(m Meta) error
}

// Bounds limit a tree. Zero means that there is no limit.
type Bounds struct {
	Depth   int // of directories
	Entries int // files, directories and links
}

// ErrBroken is the end of a stream before its last entry: the sender stopped, or the connection broke.
var ErrBroken = errors.New("the stream broke off")

// ErrFormat is a stream that Pack does not write.
var ErrFormat = errors.New("the stream is not one of forkd's")

// SenderError is a sender's word for what it could not read.
type SenderError struct{ Text guesttext.Text }

func (e *SenderError) Error() string { return e.Text.String() }

// Unpack makes in parent, under the name base, the tree that r brings. What cannot be made is told to tally, and the
// rest is made; if it is the tree itself, that is the error. A file whose content has not all come when the stream
// ends is the Target's to remove.
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
	ahead   *tar.Header // was read while a file's next piece was looked for
}

// level is a directory that the current entry is in.
type level struct {
	name string
	to   Target // nil: it could not be made, nor is what is in it
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
		if err := u.entry(h); err != nil {
			return err
		}
	}
}

// violation is an error of a stream that no packer of ours writes.
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

// root makes the tree itself. It has no other place: its failure is that of the copy.
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
	if u.entries++; u.bounds.Entries > 0 && u.entries > u.bounds.Entries {
		return fmt.Errorf("the tree has more than %d files, links and directories", u.bounds.Entries)
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
			return c.err // of the stream: there is nothing to go on with
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

// enter leaves the directories that name is not in, and returns the one that it is in; nil if that was not made.
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

// leave ends the work in the directories from level n on.
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

// took notes how one part went. The error that it returns ends the copy.
func (u *unpacker) took(name string, err error) error {
	if err != nil {
		return u.tally.failed(name, err)
	}
	u.tally.copied()
	return nil
}

// note reads a note about what the sender did not send.
func (u *unpacker) note(h *tar.Header) error {
	if u.entries++; u.bounds.Entries > 0 && u.entries > u.bounds.Entries {
		return fmt.Errorf("the tree has more than %d files, links and directories", u.bounds.Entries)
	}
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

// metaOf reads what is kept of a file. Bits beyond the permissions are dropped.
func metaOf(h *tar.Header) Meta {
	m := Meta{Mode: fs.FileMode(h.Mode & 0o777), ModTime: h.ModTime}
	first, last := time.Unix(0, math.MinInt64), time.Unix(0, math.MaxInt64)
	if m.ModTime.Before(first) || m.ModTime.After(last) { // they have no number of nanoseconds
		m.ModTime = time.Time{}
	}
	return m
}

// Content is what one file of a stream holds.
type Content struct {
	u     *unpacker
	name  string
	piece *tar.Header // that comes next; nil after the last
	end   int64       // of the pieces before
	err   error       // of the stream, or of a note in place of the rest
}

// Output is what a file is written to: an *os.File.
type Output interface {
	io.WriteSeeker
	Truncate(size int64) error
}

// WriteTo writes the file to an empty one, without writing its holes.
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
		if last && n == 0 && at > c.end { // it ends with a hole
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

// offset returns where the next piece is in the file.
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

// write copies n bytes, and tells an error of the stream from one of the file.
func (c *Content) write(f io.Writer, n int64) error {
	in := &reading{r: c.u.in, tally: c.u.tally}
	got, err := io.CopyN(f, in, n)
	switch {
	case in.err != nil:
		c.err = broken(in.err)
		return c.err
	case err == nil || got == n:
		return err
	}
	return err
}

// broken words an error of reading content.
func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrBroken
	}
	return err
}

// reading remembers an error of the stream.
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

// following reads the header of the piece after this one, if there is one.
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

// skip reads over what is left of a file that was not written.
func (c *Content) skip() error {
	for c.piece != nil && c.err == nil {
		if err := c.following(); err != nil && c.err == nil {
			return nil // the sender's: the file has failed already
		}
	}
	return c.err
}
