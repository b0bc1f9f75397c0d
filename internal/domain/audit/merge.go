package audit

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"io/fs"
	"iter"
	"slices"
	"time"
)

// kept is a copy of a line.
type kept struct {
	line  []byte
	entry Entry
}

// costOf returns the memory of a kept line: its text and the entry, which has the same text.
func costOf(line []byte) int { return 512 + 2*len(line) }

// merger reads all chains of a log in order of time.
type merger struct {
	ctx     context.Context
	path    string
	q       Query
	readers map[string]*reader
}

func (m *merger) close() {
	for _, r := range m.readers {
		r.close()
	}
}

// past reads all written lines. With Last, it keeps the newest.
func (m *merger) past(each func([]byte, Entry) error) error {
	if m.q.Last == 0 {
		return m.merged(each)
	}
	var last []kept // a ring buffer once it is full
	oldest := 0
	err := m.merged(func(line []byte, e Entry) error {
		full := len(last) == m.q.Last
		n := costOf(line)
		if full {
			n -= costOf(last[oldest].line)
		}
		if err := m.q.keep(n); err != nil {
			return err
		}
		k := kept{slices.Clone(line), e}
		if !full {
			last = append(last, k)
			return nil
		}
		last[oldest] = k
		oldest = (oldest + 1) % len(last)
		return nil
	})
	for i := range last {
		if err == nil {
			at := &last[(oldest+i)%len(last)]
			err = each(at.line, at.entry)
			_ = m.q.keep(-costOf(at.line))
			*at = kept{}
		}
	}
	return err
}

// open adds readers for chains without one. It returns them by name.
func (m *merger) open() (names []string, err error) {
	all, err := chainsOf(m.path)
	for _, name := range all {
		if m.readers[name] == nil && name != chainSeals { // seals are no actions
			if err := m.q.keep(MaxLine); err != nil { // the reader's buffer
				return names, err
			}
			m.readers[name] = &reader{ctx: m.ctx, path: pathOf(m.path, name), q: m.q.Filter, begun: map[string]int64{}}
			names = append(names, name)
		}
	}
	return names, err
}

// stream yields the lines of one chain.
type stream struct {
	kept // the next line
	next func() (kept, error, bool)
	stop func()
	rank int // order of chains with equal times
}

// advance fetches the next line. It returns false at the end.
func (s *stream) advance() (more bool, err error) {
	s.kept, err, more = s.next()
	return more && err == nil, err
}

// merged calls each with the lines of all chains.
func (m *merger) merged(each func([]byte, Entry) error) error {
	names, err := m.open()
	if err != nil {
		return err
	}
	var h streams
	for i, name := range names {
		s := &stream{rank: i}
		s.next, s.stop = iter.Pull2(m.readers[name].lines(name == ""))
		defer s.stop()
		more, err := s.advance()
		if err != nil {
			return err
		}
		if more {
			h = append(h, s)
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		s := h[0]
		if err := each(s.line, s.entry); err != nil {
			return err
		}
		switch more, err := s.advance(); {
		case err != nil:
			return err
		case more:
			heap.Fix(&h, 0)
		default:
			heap.Pop(&h)
		}
	}
	return nil
}

// errStopped ends a reader whose lines are no longer needed.
var errStopped = errors.New("stopped")

// lines returns the written lines. Only the first chain must exist.
func (r *reader) lines(must bool) iter.Seq2[kept, error] {
	return func(yield func(kept, error) bool) {
		r.each = func(line []byte, e Entry) error {
			if !yield(kept{line, e}, nil) {
				return errStopped
			}
			return nil
		}
		err := r.files(0)
		if errors.Is(err, errStopped) || errors.Is(err, fs.ErrNotExist) && !must {
			return
		}
		if err != nil {
			yield(kept{}, err)
		}
	}
}

// streams is a heap with the oldest line on top.
type streams []*stream

func (h streams) Len() int { return len(h) }
func (h streams) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(a.entry.Time.Compare(b.entry.Time), cmp.Compare(a.rank, b.rank)) < 0
}
func (h streams) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *streams) Push(x any)   { *h = append(*h, x.(*stream)) }
func (h *streams) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	*h = (*h)[:last]
	return s
}

// maxBatch limits the lines of a poll that are sorted together.
const maxBatch = 4096

// follow calls each with new lines until the context ends. Lines of one poll are ordered by time.
func (m *merger) follow(each func([]byte, Entry) error) error {
	var batch []kept
	held := 0
	flush := func() error {
		slices.SortStableFunc(batch, func(a, b kept) int { return a.entry.Time.Compare(b.entry.Time) })
		for _, k := range batch {
			if err := each(k.line, k.entry); err != nil {
				return err
			}
		}
		clear(batch)
		batch = batch[:0]
		_ = m.q.keep(-held)
		held = 0
		return nil
	}
	collect := func(line []byte, e Entry) error {
		n := costOf(line)
		if err := m.q.keep(n); err != nil {
			return err
		}
		held += n
		batch = append(batch, kept{slices.Clone(line), e})
		if len(batch) >= maxBatch {
			return flush()
		}
		return nil
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return context.Cause(m.ctx)
		case <-tick.C:
		}
		if _, err := m.open(); err != nil {
			return err
		}
		for _, r := range m.readers {
			r.each = collect
			if err := r.poll(); err != nil {
				return err
			}
		}
		if err := flush(); err != nil {
			return err
		}
	}
}
