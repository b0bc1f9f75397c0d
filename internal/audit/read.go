package audit

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// Query is what Read reads.
type Query struct {
	Filter
	Last   int  // that many lines at most, the newest; 0: all
	Follow bool // go on with those that come, until the context ends
}

// pollEvery is how often a follower looks for what is new.
const pollEvery = 250 * time.Millisecond

// Read calls each with the lines that a query wants, oldest first: as they are in the file, without
// their newlines, and read. The line is good until each returns. What is no line is passed over.
func Read(ctx context.Context, path string, q Query, each func(line []byte, e Entry) error) error {
	r := reader{ctx: ctx, path: path, q: q, each: each}
	if q.Last > 0 {
		r.last = make([]kept, 0, min(q.Last, 1024))
	}
	defer r.close()
	if err := r.files(0); err != nil {
		return err
	}
	if err := r.flush(); err != nil || !q.Follow {
		return err
	}
	return r.follow()
}

// kept is a line that waits until it is known to be one of the last.
type kept struct {
	line  []byte
	entry Entry
}

type reader struct {
	ctx  context.Context
	path string
	q    Query
	each func([]byte, Entry) error
	last []kept // nil: every line is told as it is read

	f    *os.File
	s    *scanner
	rest []byte // of a line whose end is not written yet
	seq  uint64 // of the last line that was read
	news bool   // the open file has had one that is not of a file that was read before
}

func (r *reader) close() {
	if r.f != nil {
		r.f.Close()
	}
}

// files reads those that are newer than a number, and leaves the last open. What the log removes
// meanwhile, being the oldest, is not read.
func (r *reader) files(done uint64) error {
	for try := 1; ; try++ {
		err := walk(r.path, done, r.file)
		if !errors.Is(err, errOldestGone) || try == maxTries {
			return err
		}
	}
}

// file reads one to its end.
func (r *reader) file(f *os.File, _ bool) error {
	r.close()
	r.f, r.s, r.rest, r.news = f, newScanner(f), nil, false
	return r.drain()
}

// drain reads what there is.
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
		if err := r.take(p); err != nil {
			return err
		}
	}
}

// take tells a line, if it is wanted. Its beginning may have come with an earlier piece.
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
	// What was read before its file was rolled over is not told again. Only a file's beginning can be that: behind it
	// a number says nothing, as one that somebody wrote into the file must not hide what comes after it.
	if !whole || !r.news && e.Seq <= r.seq {
		return nil
	}
	r.seq, r.news = e.Seq, true
	if !r.q.Match(e) {
		return nil
	}
	if r.last == nil {
		return r.each(line, e)
	}
	if len(r.last) == r.q.Last {
		copy(r.last, r.last[1:])
		r.last = r.last[:len(r.last)-1]
	}
	r.last = append(r.last, kept{append([]byte(nil), line...), e})
	return nil
}

// flush tells the last lines; those that come after are told as they come.
func (r *reader) flush() error {
	last := r.last
	r.last = nil
	for _, k := range last {
		if err := r.each(k.line, k.entry); err != nil {
			return err
		}
	}
	return nil
}

// follow goes on with what comes, also in the files after this one.
func (r *reader) follow() error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		case <-tick.C:
		}
		if err := r.drain(); err != nil {
			return err
		}
		if !r.moved() {
			continue
		}
		if err := r.drain(); err != nil { // what was written to it last
			return err
		}
		if err := r.after(); err != nil {
			return err
		}
	}
}

// moved reports whether the open file is the log's current one no more.
func (r *reader) moved() bool {
	if r.f == nil {
		return true
	}
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
	return r.files(done)
}
