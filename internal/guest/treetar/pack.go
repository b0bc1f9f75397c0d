package treetar

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Source reads the files of a tree by their paths.
type Source interface {
	// Look describes the file at a path. With follow it describes a link's target.
	Look(path string, follow bool) (fs.FileInfo, error)
	// List returns the names in a directory.
	List(path string) ([]string, error)
	// ReadLink returns the text of a link.
	ReadLink(path string) (string, error)
	// Open opens a regular file for reading. It returns an error if the file was replaced after
	// Look.
	Open(path string, looked fs.FileInfo) (*os.File, error)
}

// Pack writes the tree at root, which may be a file, to w. With follow it writes the targets of
// links. It returns an error before the first byte if the root itself cannot be read. Failures
// below the root are reported to tally and to the reader.
func Pack(ctx context.Context, w io.Writer, s Source, root string, follow bool, tally Tally) error {
	out := bufio.NewWriterSize(w, 64<<10)
	p := &packer{ctx: ctx, from: s, out: tar.NewWriter(out), follow: follow, tally: tally, first: map[inode]string{}}
	if err := p.root(root); err != nil {
		return err
	}
	if err := p.note(rootName, noteEnd, ""); err != nil {
		return err
	}
	return errors.Join(p.out.Close(), out.Flush())
}

// inode identifies a file with several names.
type inode struct{ device, number uint64 }

type packer struct {
	ctx    context.Context
	from   Source
	out    *tar.Writer
	follow bool
	tally  Tally
	first  map[inode]string // first name in the stream of each file with several names
	above  []fs.FileInfo    // directories that contain the current entry
	buf    []byte           // for a piece
}

func (p *packer) root(at string) error {
	st, err := p.from.Look(at, true)
	if err != nil {
		return err
	}
	if st.IsDir() {
		names, err := p.from.List(at)
		if err != nil {
			return err
		}
		return p.filled(at, rootName, st, names)
	}
	f, err := p.from.Open(at, st)
	if err != nil {
		return err
	}
	return p.content(f, rootName, st)
}

// add writes a directory's entry of any type. Its errors end the stream.
func (p *packer) add(at, name string) error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if len(name) > maxName {
		return p.failed(name[:maxName], errors.New("its path is too long"))
	}
	st, err := p.from.Look(at, p.follow)
	switch {
	case err != nil:
		return p.failed(name, err)
	case st.IsDir():
		return p.dir(at, name, st)
	case st.Mode()&fs.ModeSymlink != 0:
		return p.link(at, name, st)
	case !st.Mode().IsRegular():
		why := "it is " + Special(st.Mode())
		p.tally.skipped(name, why)
		return p.note(name, noteSkipped, why)
	}
	return p.file(at, name, st)
}

// Special returns the type of a file that is not copied, for people: "a FIFO".
func Special(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "neither a file nor a directory"
}

func (p *packer) dir(at, name string, st fs.FileInfo) error {
	if slices.ContainsFunc(p.above, func(a fs.FileInfo) bool { return os.SameFile(a, st) }) {
		return p.failed(name, errors.New("it is a link to its own parent directory"))
	}
	names, err := p.from.List(at)
	if err != nil {
		return p.failed(name, err)
	}
	return p.filled(at, name, st, names)
}

// filled writes a directory and its contents.
func (p *packer) filled(at, name string, st fs.FileInfo, names []string) error {
	if err := p.header(name+"/", tar.TypeDir, st, ""); err != nil {
		return err
	}
	p.tally.copied()
	p.above = append(p.above, st)
	defer func() { p.above = p.above[:len(p.above)-1] }()
	slices.Sort(names)
	for _, n := range names {
		if err := p.add(filepath.Join(at, n), path.Join(name, n)); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) link(at, name string, st fs.FileInfo) error {
	text, err := p.from.ReadLink(at)
	if err != nil {
		return p.failed(name, err)
	}
	if err := p.header(name, tar.TypeSymlink, st, text); err != nil {
		return err
	}
	p.tally.copied()
	return nil
}

func (p *packer) file(at, name string, st fs.FileInfo) error {
	node, several := inodeOf(st)
	if first, ok := p.first[node]; several && ok {
		if err := p.header(name, tar.TypeLink, st, first); err != nil {
			return err
		}
		p.tally.copied()
		return nil
	}
	f, err := p.from.Open(at, st)
	if err != nil {
		return p.failed(name, err)
	}
	if several {
		p.first[node] = name
	}
	return p.content(f, name, st)
}

func (p *packer) header(name string, kind byte, st fs.FileInfo, text string) error {
	return p.out.WriteHeader(&tar.Header{
		Typeflag: kind, Name: name, Linkname: text, Mode: int64(st.Mode().Perm()), ModTime: st.ModTime(),
		Format: tar.FormatPAX,
	})
}

func (p *packer) failed(name string, err error) error {
	err = bare(err)
	if err := p.tally.failed(name, err); err != nil {
		return err
	}
	return p.note(name, noteFailed, err.Error())
}

// bare returns only the cause, because the path is reported separately.
func bare(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

func (p *packer) note(name, kind, text string) error {
	records := map[string]string{recordNote: kind}
	if text != "" {
		records[recordText] = text[:min(len(text), maxName)]
	}
	return p.out.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: 0o600, PAXRecords: records, Format: tar.FormatPAX,
	})
}

// content writes the pieces of a file and closes it.
func (p *packer) content(f *os.File, name string, st fs.FileInfo) error {
	defer f.Close()
	if p.buf == nil {
		p.buf = make([]byte, maxPiece)
	}
	for c := newExtents(f, st); ; {
		at, n, err := c.next(p.buf)
		if err != nil { // a note replaces the rest
			return p.failed(name, fmt.Errorf("read it: %w", bare(err)))
		}
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: name, Size: int64(n), Mode: int64(st.Mode().Perm()), ModTime: st.ModTime(),
			Format: tar.FormatPAX, PAXRecords: map[string]string{},
		}
		if at > 0 {
			h.PAXRecords[recordAt] = strconv.FormatInt(at, 10)
		}
		if !c.done {
			h.PAXRecords[recordMore] = "1"
		}
		if err := p.out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := p.out.Write(p.buf[:n]); err != nil {
			return err
		}
		p.tally.progress(n)
		if c.done {
			p.tally.copied()
			return nil
		}
		if err := p.ctx.Err(); err != nil {
			return err
		}
	}
}

// Measure returns the size of a tree's content without holes. If ctx ends first, it stops and
// returns ok false.
func Measure(ctx context.Context, s Source, root string, follow bool) (bytes int64, ok bool) {
	m := &packer{ctx: ctx, from: s, follow: follow, first: map[inode]string{}}
	st, err := s.Look(root, true)
	if err != nil {
		return 0, false
	}
	return m.measure(root, st)
}

func (p *packer) measure(at string, st fs.FileInfo) (bytes int64, ok bool) {
	switch {
	case p.ctx.Err() != nil:
		return 0, false
	case st.Mode().IsRegular():
		if node, several := inodeOf(st); several {
			if _, counted := p.first[node]; counted {
				return 0, true
			}
			p.first[node] = at
		}
		return filled(st), true
	case !st.IsDir() || slices.ContainsFunc(p.above, func(a fs.FileInfo) bool { return os.SameFile(a, st) }):
		return 0, true
	}
	names, err := p.from.List(at)
	if err != nil {
		return 0, true
	}
	p.above = append(p.above, st)
	defer func() { p.above = p.above[:len(p.above)-1] }()
	for _, n := range names {
		sub := filepath.Join(at, n)
		if st, err := p.from.Look(sub, p.follow); err == nil {
			n, ok := p.measure(sub, st)
			if bytes += n; !ok {
				return bytes, false
			}
		}
	}
	return bytes, true
}

// isName reports whether a path of a stream stays in the tree: names, separated by single slashes.
func isName(name string) bool {
	if name == rootName {
		return true
	}
	if name == "" || len(name) > maxName || strings.IndexByte(name, 0) >= 0 {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}
