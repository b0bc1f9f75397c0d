package audit

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Query is what Read reads.
type Query struct {
	Filter
	Last   int  // that many lines at most, the newest; 0: all
	Follow bool // continue with new lines until the context ends
	// Keep, if set, is asked before n bytes are kept, and returns false if there is no room for them; Read
	// returns ErrNoRoom then. A negative n gives bytes back.
	Keep func(n int) bool
}

// ErrNoRoom is the error of Read if Query.Keep had no room.
var ErrNoRoom = errors.New("no room for lines of the audit log")

func (q Query) keep(n int) error {
	if q.Keep == nil || n == 0 || q.Keep(n) {
		return nil
	}
	return ErrNoRoom
}

// pollEvery is how often a follower looks for new lines.
const pollEvery = 250 * time.Millisecond

// Read calls each with the lines of all chains that match a query, oldest first. A line is as it is in its
// file, without its newline, and valid until each returns. Lines of one chain keep their order.
func Read(ctx context.Context, path string, q Query, each func(line []byte, e Entry) error) error {
	m := &merger{ctx: ctx, path: path, q: q, readers: map[string]*reader{}}
	defer m.close()
	if err := m.past(each); err != nil || !q.Follow {
		return err
	}
	return m.follow(each)
}

// chainsOf returns the names of a log's chains, the first one (an empty name) first.
func chainsOf(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	names := []string{""}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		if !ok || !e.Type().IsRegular() {
			continue
		}
		name = strings.TrimSuffix(name, headSuffix)
		if i := strings.LastIndexByte(name, '.'); i > 0 && rolledName.MatchString(name[i+1:]) {
			name = name[:i]
		}
		if chainName.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// reader reads one chain.
type reader struct {
	ctx  context.Context
	path string
	q    Filter
	each func(line []byte, e Entry) error

	f    *os.File
	s    *scanner
	rest []byte // of a line whose end is not written yet
	at   int64  // bytes of f that were read
	// begun holds the bytes that were read of earlier files, by the hash of their first line. Numbers of
	// lines cannot replace it: whoever writes to a file can forge them.
	begun map[string]int64
}

func (r *reader) close() {
	if r.f == nil {
		return
	}
	if first := firstHash(r.f); first != "" {
		r.begun[first] = r.at - int64(len(r.rest))
	}
	r.f.Close()
	r.f = nil
}

// firstHash returns the hash of a file's first line, or nothing if that is not whole.
func firstHash(f *os.File) string {
	b := make([]byte, MaxLine)
	n, _ := f.ReadAt(b, 0)
	line, _, whole := strings.Cut(string(b[:n]), "\n")
	if !whole {
		return ""
	}
	return hashOf([]byte(line))
}

// files reads all files that are newer than a number, and leaves the last one open. Files that the log
// removes meanwhile are not read.
func (r *reader) files(done uint64) error {
	for try := 1; ; try++ {
		err := walk(r.path, done, r.file)
		if !errors.Is(err, errOldestGone) || try == maxTries {
			return err
		}
	}
}

// file reads a file to its end, except for the part that was read before.
func (r *reader) file(f *os.File, _ bool) error {
	r.close()
	at, err := f.Seek(r.begun[firstHash(f)], io.SeekStart)
	r.f, r.s, r.rest, r.at = f, newScanner(f), nil, at
	if err != nil {
		return err
	}
	return r.drain()
}

// drain reads to the end of the open file.
func (r *reader) drain() error {
	for {
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		p, err := r.s.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		r.at += int64(len(p.raw))
		if err := r.take(p); err != nil {
			return err
		}
	}
}

// take passes a line on if it matches. Its beginning may have come with an earlier piece.
func (r *reader) take(p piece) error {
	line, e, whole := p.line, p.entry, p.whole
	if len(r.rest) > 0 || !p.end {
		if len(r.rest)+len(p.raw) > MaxLine {
			r.rest = r.rest[:0] // no line is so long
			return nil
		}
		r.rest = append(r.rest, p.raw...)
		if !p.end {
			return nil
		}
		line = r.rest[:len(r.rest)-1]
		r.rest = nil
		var err error
		e, err = Decode(line)
		whole = err == nil
	}
	if !whole || !r.q.Match(e) {
		return nil
	}
	return r.each(line, e)
}

// poll reads what is new.
func (r *reader) poll() error {
	if r.f != nil {
		if err := r.drain(); err != nil || !r.moved() {
			return err
		}
		if err := r.drain(); err != nil { // the last lines before it was renamed
			return err
		}
	}
	return r.after()
}

// moved reports whether the open file is no longer the chain's newest.
func (r *reader) moved() bool {
	now, err := os.Stat(r.path)
	if err != nil {
		return false // between two names
	}
	open, err := r.f.Stat()
	return err == nil && !os.SameFile(now, open)
}

// after reads the files that are newer than the open one.
func (r *reader) after() error {
	var done uint64 // the open one is gone: all are newer
	if r.f != nil {
		open, err := r.f.Stat()
		if err != nil {
			return err
		}
		full, err := rolledFiles(r.path)
		if err != nil {
			return err
		}
		for _, f := range full {
			if st, err := os.Stat(f.path); err == nil && os.SameFile(st, open) {
				done = f.number
			}
		}
	}
	if err := r.files(done); !errors.Is(err, fs.ErrNotExist) || r.f != nil {
		return err
	}
	return nil // nothing of this chain is written yet
}
