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

// Query selects the lines for Read.
type Query struct {
	Filter
	Last   int  // at most that many of the newest lines; 0 for all
	Follow bool // continue with new lines until the context ends
	// Keep, if set, is called before n bytes are kept. If it returns false for lack of room, Read returns
	// ErrNoRoom. A negative n gives bytes back.
	Keep func(n int) bool
}

// ErrNoRoom is returned by Read if Query.Keep had no room.
var ErrNoRoom = errors.New("no room for lines of the audit log")

func (q Query) keep(n int) error {
	if q.Keep == nil || n == 0 || q.Keep(n) {
		return nil
	}
	return ErrNoRoom
}

// pollEvery is a follower's polling interval.
const pollEvery = 250 * time.Millisecond

// Read calls each with the matching lines of all chains, oldest first. A line is passed as in its file, without
// its newline, and is valid until each returns. Lines of one chain keep their order.
func Read(ctx context.Context, path string, q Query, each func(line []byte, e Entry) error) error {
	m := &merger{ctx: ctx, path: path, q: q, readers: map[string]*reader{}}
	defer m.close()
	if err := m.past(each); err != nil || !q.Follow {
		return err
	}
	return m.follow(each)
}

// chainsOf returns the names of a log's chains. The first chain, with an empty name, comes first.
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
	at   int64  // bytes read from f
	// begun maps the hash of a file's first line to the bytes already read from the file. Line numbers would not
	// do: a process that can write to a file can forge them.
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

// firstHash returns the hash of a file's first line. It returns an empty string if that line is incomplete.
func firstHash(f *os.File) string {
	b := make([]byte, MaxLine)
	n, _ := f.ReadAt(b, 0)
	line, _, whole := strings.Cut(string(b[:n]), "\n")
	if !whole {
		return ""
	}
	return hashOf([]byte(line))
}

// files reads all files newer than the one numbered done, and leaves the last one open. It skips files that the
// log removes meanwhile.
func (r *reader) files(done uint64) error {
	for try := 1; ; try++ {
		err := walk(r.path, done, r.file)
		if !errors.Is(err, errOldestGone) || try == maxTries {
			return err
		}
	}
}

// file reads a file to its end, except for the part already read.
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
		if errors.Is(err, io.EOF) {
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

// take passes on a line if it matches. The line's beginning may have come with an earlier piece.
func (r *reader) take(p piece) error {
	line, e, whole := p.line, p.entry, p.whole
	if len(r.rest) > 0 || !p.end {
		if len(r.rest)+len(p.raw) > MaxLine {
			r.rest = r.rest[:0] // longer than any line
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

// poll reads new lines.
func (r *reader) poll() error {
	if r.f != nil {
		if err := r.drain(); err != nil || !r.moved() {
			return err
		}
		if err := r.drain(); err != nil { // the last lines written before the rename
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

// after reads the files newer than the open one.
func (r *reader) after() error {
	var done uint64 // if the open file is gone, all are newer
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
	return nil // this chain has no lines yet
}
