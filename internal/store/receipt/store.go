package receipt

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/sys/durable"
)

// Limits limits the number and age of receipts.
type Limits struct {
	Count int           // for all owners together, default 10 000; see shareOf
	Age   time.Duration // default 30 days
}

// keptOfEach is the number of receipts kept for each existing subject, regardless of the limits.
const keptOfEach = 16

// maxPending limits the receipts waiting to be written. Beyond it, the oldest receipt of the owner with the most
// is lost.
const maxPending = 20_000

// Store is a directory of receipts, one file each. Its methods are safe for concurrent use. Only one process at a
// time may have it open.
type Store struct {
	dir    string
	limits Limits
	wake   chan struct{}

	writing sync.Mutex // one Flush or Prune at a time; taken before mu

	mu      sync.Mutex // guards the fields below
	last    int64      // microseconds in the last id
	seq     uint16
	pending []*entry       // oldest first
	waiting map[string]int // number of each owner's pending receipts
	lost    int            // receipts beyond maxPending
	fresh   int            // written since the last Prune
	pruned  time.Time
}

// entry is a receipt not yet on disk.
type entry struct {
	name  name
	build func() Receipt // callable concurrently; builds once
}

// Open opens the directory, and creates it if needed. It removes the remains of interrupted writes.
func Open(dir string, limits Limits) (*Store, error) {
	if limits.Count <= 0 {
		limits.Count = 10_000
	}
	if limits.Age <= 0 {
		limits.Age = 30 * 24 * time.Hour
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open receipts: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, tempPrefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("open receipts: %w", err)
	}
	for _, path := range left {
		os.Remove(path)
	}
	s := &Store{dir: dir, limits: limits, wake: make(chan struct{}, 1), waiting: map[string]int{}}
	return s, s.nameOwners()
}

// Wake receives a value when receipts wait to be written.
func (s *Store) Wake() <-chan struct{} { return s.wake }

// Put stores a receipt for an owner: a tenant or, if empty, the operator. The receipt can be found immediately;
// Flush writes it. build is called once, later, by the first reader, so it must not depend on changing data. Put
// sets the receipt's ID and owner.
func (s *Store) Put(owner string, kind Kind, of string, build func() Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := name{id: s.nextIDLocked(), kind: kind, of: of, owner: owner}
	s.pending = append(s.pending, &entry{name: n, build: sync.OnceValue(func() Receipt {
		r := build()
		r.Format, r.ID, r.Owner = Format, n.id, n.owner
		return r
	})})
	s.waiting[owner]++
	if len(s.pending) > maxPending {
		s.loseLocked()
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// loseLocked drops the oldest pending receipt of the owner with the most.
func (s *Store) loseLocked() {
	largest := s.pending[0].name.owner
	for owner, n := range s.waiting {
		if n > s.waiting[largest] {
			largest = owner
		}
	}
	i := slices.IndexFunc(s.pending, func(e *entry) bool { return e.name.owner == largest })
	s.forgetLocked(map[*entry]bool{s.pending[i]: true})
	s.lost++
}

// forgetLocked removes entries from the pending ones.
func (s *Store) forgetLocked(gone map[*entry]bool) {
	s.pending = slices.DeleteFunc(s.pending, func(e *entry) bool {
		if gone[e] {
			if s.waiting[e.name.owner]--; s.waiting[e.name.owner] == 0 {
				delete(s.waiting, e.name.owner)
			}
		}
		return gone[e]
	})
}

// nextIDLocked returns ascending ids, even if the clock stops or steps back.
func (s *Store) nextIDLocked() string {
	if now := time.Now().UnixMicro(); now > s.last {
		s.last, s.seq = now, 0
	} else if s.seq++; s.seq == 0 {
		s.last++
	}
	return fmt.Sprintf("r%014x%04x", s.last, s.seq)
}

// Flush writes the pending receipts. If a write fails, its receipt stays for the next Flush.
func (s *Store) Flush() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	batch := slices.Clone(s.pending)
	lost := s.lost
	s.lost = 0
	s.mu.Unlock()
	var errs []error
	if lost > 0 {
		errs = append(errs, fmt.Errorf("%d receipts were lost before they could be written", lost))
	}
	written, err := s.write(batch)
	s.mu.Lock()
	s.forgetLocked(written)
	s.fresh += len(written)
	s.mu.Unlock()
	return errors.Join(append(errs, err)...)
}

// atOnce limits the number of encoded receipts in memory. Each lot needs one sync of the file system.
const atOnce = 1000

// write writes entries into files, in order.
func (s *Store) write(batch []*entry) (written map[*entry]bool, err error) {
	written = map[*entry]bool{}
	var errs []error
	for lot := range slices.Chunk(batch, atOnce) {
		var ready []*entry
		var files []durable.File
		for _, e := range lot {
			b, err := Encode(e.build())
			if err = errors.Join(err, checkOwner(e.name.owner)); err != nil { // trying again would not help
				written[e] = true
				errs = append(errs, err)
				continue
			}
			ready, files = append(ready, e), append(files, durable.File{Name: e.name.file(), Content: b})
		}
		put, err := durable.PutFiles(s.dir, tempPrefix, files)
		for _, e := range ready[:put] {
			written[e] = true
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write receipts: %w", err))
			break
		}
	}
	return written, errors.Join(errs...)
}

// Filter selects receipts. The zero value selects all.
type Filter struct {
	Kind   Kind   // empty for both
	Of     string // name of the subject; empty for any
	Op     Op     // empty for any
	Tenant string // only of this tenant; empty for all owners
	Limit  int    // maximum number; 0 if unlimited
}

func (f Filter) matches(n name) bool {
	return (f.Kind == "" || f.Kind == n.kind) && (f.Of == "" || f.Of == n.of) && (f.Tenant == "" || f.Tenant == n.owner)
}

// List returns receipts, newest first. It only reads the files with a matching kind, subject and tenant in their
// names. It skips unreadable files and reports them in the error, which it returns along with the other receipts.
func (s *Store) List(f Filter) ([]Receipt, error) {
	s.mu.Lock()
	pending := slices.Clone(s.pending)
	s.mu.Unlock()
	names, err := s.names() // read last: a receipt written meanwhile is found twice rather than missed
	if err != nil {
		return nil, err
	}
	waiting := map[string]*entry{}
	for _, e := range pending {
		waiting[e.name.id] = e
		names = append(names, e.name)
	}
	slices.SortFunc(names, func(a, b name) int { return cmp.Compare(b.id, a.id) })
	names = slices.Compact(names)
	var out []Receipt
	var errs []error
	for _, n := range names {
		if !f.matches(n) {
			continue
		}
		r, err := s.read(n, waiting[n.id])
		switch {
		case errors.Is(err, fs.ErrNotExist): // pruned meanwhile
		case err != nil:
			errs = append(errs, err)
		case f.Op == "" || f.Op == r.Op:
			out = append(out, r)
		}
		if f.Limit > 0 && len(out) == f.Limit {
			break
		}
	}
	return out, errors.Join(errs...)
}

// Subjects returns the subjects of a kind with a receipt.
func (s *Store) Subjects(kind Kind) (map[string]bool, error) {
	s.mu.Lock()
	pending := slices.Clone(s.pending)
	s.mu.Unlock()
	names, err := s.names()
	for _, e := range pending {
		names = append(names, e.name)
	}
	out := map[string]bool{}
	for _, n := range names {
		if n.kind == kind {
			out[n.of] = true
		}
	}
	return out, err
}

func (s *Store) names() ([]name, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list receipts: %w", err)
	}
	out := make([]name, 0, len(entries))
	for _, en := range entries {
		if n, ok := parseName(en.Name()); ok {
			out = append(out, n)
		}
	}
	return out, nil
}

func (s *Store) read(n name, waiting *entry) (Receipt, error) {
	if waiting != nil {
		return waiting.build(), nil
	}
	b, err := durable.ReadFile(filepath.Join(s.dir, n.file()), MaxBytes)
	if err != nil {
		return Receipt{}, fmt.Errorf("read receipt %s: %w", n.file(), err)
	}
	r, err := Decode(b)
	if err != nil {
		return Receipt{}, fmt.Errorf("%s: %w", n.file(), err)
	}
	if kind, of := r.Subject(); kind != n.kind || of != n.of || r.ID != n.id || r.Owner != n.owner && !n.unowned {
		return Receipt{}, fmt.Errorf("%s: %w: it is of %s %s", n.file(), ErrFormat, kind, of)
	}
	return r, nil
}

// pruneEvery is the interval between prunes if few receipts are written.
const pruneEvery = time.Hour

// Crowded reports whether to call Prune. Reading the directory costs more than writing a receipt.
func (s *Store) Crowded(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pruned.IsZero() || s.fresh > s.limits.Count/10 || now.Sub(s.pruned) > pruneEvery
}

// Prune removes receipts that are too old, and the oldest receipts of owners above their share. It keeps the
// newest few of each existing subject.
func (s *Store) Prune(now time.Time, exists func(Kind, string) bool) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	s.fresh, s.pruned = 0, now
	s.mu.Unlock()
	names, err := s.names()
	if err != nil {
		return err
	}
	slices.SortFunc(names, func(a, b name) int { return cmp.Compare(b.id, a.id) })
	type subject struct {
		kind Kind
		of   string
	}
	share := shareOf(names, s.limits.Count)
	seen, owned := map[subject]int{}, map[string]int{}
	var errs []error
	for _, n := range names {
		sub := subject{n.kind, n.of}
		seen[sub]++
		owned[n.owner]++
		if owned[n.owner] <= share && now.Sub(n.at()) <= s.limits.Age || seen[sub] <= keptOfEach && exists(n.kind, n.of) {
			continue
		}
		if err := os.Remove(filepath.Join(s.dir, n.file())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
