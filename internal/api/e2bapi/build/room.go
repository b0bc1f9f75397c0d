package build

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Limits of one owner's uploads and templates.
const (
	maxOwnerUploads  = 8 << 30
	maxUploadsAtOnce = 4
	maxTemplates     = 200 // of a tenant
	// An upload is checked after at most this many bytes, or this much time while bytes arrive.
	checkBytes = 1 << 20
	checkEvery = time.Second
	// defaultReserve is the number of bytes uploads leave free on the disk.
	defaultReserve = 256 << 20
)

// Reserve sets the number of bytes uploads leave free on the disk.
func (s *Store) Reserve(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserve = bytes
}

// HeldBytes returns the size of an owner's uploads in bytes. Unfinished uploads count with their
// whole size.
func (s *Store) HeldBytes(owner string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending[owner].bytes + s.keptLocked(owner)
}

func (s *Store) keptLocked(owner string) (sum int64) {
	names, _ := os.ReadDir(s.filesDir(owner))
	for _, n := range names {
		if st, err := n.Info(); err == nil && !strings.HasPrefix(n.Name(), part) {
			sum += st.Size()
		}
	}
	return sum
}

// pending counts an owner's unfinished uploads and their whole size.
type pending struct {
	n     int
	bytes int64
}

// begin counts an upload of size bytes until end is called.
func (s *Store) begin(owner string, size int64) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pending[owner]
	if p.n >= maxUploadsAtOnce {
		return nil, sandbox.Errorf(sandbox.ErrBusy, "",
			"%d uploads are under way, want at most %d at a time", p.n, maxUploadsAtOnce)
	}
	s.pending[owner] = pending{p.n + 1, p.bytes + size}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p := s.pending[owner]; p.n > 1 {
			s.pending[owner] = pending{p.n - 1, p.bytes - size}
		} else {
			delete(s.pending, owner)
		}
	}, nil
}

// roomFor refuses bytes that would use the disk's reserve.
func (s *Store) roomFor(more int64) error {
	s.mu.Lock()
	reserve := s.reserve
	s.mu.Unlock()
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Join(s.dir, "files"), &st); err != nil {
		return &os.PathError{Op: "statfs", Path: s.dir, Err: err}
	}
	if free := int64(st.Bavail) * st.Bsize; free-more < reserve {
		return sandbox.Errorf(sandbox.ErrNoSpace, "",
			"an upload of %d MiB does not fit: the disk has %d MiB free, of which %d MiB stay free",
			more>>20, free>>20, reserve>>20)
	}
	return nil
}

// checked checks before each read whether an upload may continue.
type checked struct {
	r    io.Reader
	may  func() error
	n    int
	last time.Time
	err  error // returned by may
}

func (c *checked) Read(p []byte) (int, error) {
	if now := time.Now(); c.n >= checkBytes || now.Sub(c.last) >= checkEvery {
		if c.err = c.may(); c.err != nil {
			return 0, c.err
		}
		c.n, c.last = 0, now
	}
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}
