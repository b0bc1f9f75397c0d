package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/forkd/forkd/internal/store/overlay"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Clone makes a volume with the content of another one that no sandbox has. It copies no data.
func (s *Store) Clone(owner, from, name string, readOnly bool) (Volume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	src, err := s.findLocked(owner, from)
	if err != nil {
		return Volume{}, err
	}
	if err := s.admitLocked(owner, name, src.Bytes); err != nil {
		return Volume{}, err
	}
	frozen, err := s.freezeLocked(src)
	if err != nil {
		return Volume{}, err
	}
	r := &record{Bytes: src.Bytes, From: src.Name, ReadOnly: readOnly, Backing: slices.Clone(src.Backing)}
	var names []string
	for range frozen {
		names = append(names, r.newFile())
	}
	r.Files = names
	return s.addLocked(r, owner, name, func(dir string) error {
		for i, path := range frozen {
			if err := os.Link(path, filepath.Join(dir, names[i])); err != nil {
				return err
			}
		}
		return touch(filepath.Join(dir, r.Files[len(r.Files)-1]))
	})
}

func touch(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// freezeLocked makes the content of a volume at rest immutable, and returns the paths of its files without the
// top, which is then empty.
func (s *Store) freezeLocked(r *record) ([]string, error) {
	if by := s.held[r.ID]; by != "" {
		return nil, fmt.Errorf("%w: sandbox %s has volume %s, and may be writing: branch the sandbox, or let it end first",
			ErrHeld, by, r.Name)
	}
	if err := s.restLocked(r.ID); err != nil { // at the release there was no room
		return nil, err
	}
	top := s.path(r.ID, r.Files[len(r.Files)-1])
	st, err := os.Stat(top)
	if err != nil {
		return nil, fmt.Errorf("freeze volume %s: %w", r.Name, err)
	}
	if st.Size() > 0 {
		if err := s.pushLocked(r); err != nil {
			return nil, fmt.Errorf("freeze volume %s: %w", r.Name, err)
		}
	}
	var frozen []string
	for _, name := range r.Files[:len(r.Files)-1] {
		frozen = append(frozen, s.path(r.ID, name))
	}
	return frozen, nil
}

// pushLocked puts an empty file on top. A tall stack is merged before.
func (s *Store) pushLocked(r *record) error {
	next := r.clone()
	if len(next.Files) >= maxFiles {
		if err := s.mergeLocked(next); err != nil {
			return err
		}
	}
	name := next.newFile()
	if err := passed("push.file", func() error { return touch(s.path(r.ID, name)) }); err != nil {
		return err
	}
	next.Files = append(next.Files, name)
	if err := passed("push.record", func() error { return next.write(s.dir(r.ID)) }); err != nil {
		os.Remove(s.path(r.ID, name))
		return err
	}
	s.replaceLocked(r, next)
	return nil
}

// replaceLocked makes next the record, which is written already, and removes files that it does not name.
func (s *Store) replaceLocked(r, next *record) {
	for _, name := range r.names() {
		if !slices.Contains(next.names(), name) {
			os.Remove(s.path(r.ID, name))
		}
	}
	*r = *next
}

func (r *record) names() []string {
	names := slices.Clone(r.Files)
	if r.Next != "" {
		names = append(names, r.Next)
	}
	if r.Alt != nil {
		names = append(names, r.Alt.File)
	}
	return names
}

// mergeLocked copies the files of a volume at rest into one.
func (s *Store) mergeLocked(r *record) error {
	name := r.newFile()
	path := s.path(r.ID, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.mergeInto(f, r); err != nil {
		os.Remove(path)
		return err
	}
	r.Files = []string{name}
	return nil
}

func (s *Store) mergeInto(f *os.File, r *record) error {
	to, err := overlay.Open(f, r.Bytes, nil)
	if err != nil {
		return err
	}
	files, err := openAll(s.paths(r))
	defer closeAll(files)
	if err != nil {
		return err
	}
	list, err := extentsOf(files, r.Bytes, nil)
	if err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	for _, e := range list {
		for at := int64(0); at < e.Length; {
			n := min(int64(len(buf)), e.Length-at)
			if _, err := e.File.ReadAt(buf[:n], e.FileOffset+at); err != nil {
				return err
			}
			if _, err := to.WriteAt(buf[:n], e.Offset+at); err != nil {
				return err
			}
			at += n
		}
	}
	return to.Flush()
}

// paths returns the paths of a volume's files, bottom up.
func (s *Store) paths(r *record) (paths []string) {
	for _, name := range r.Files {
		paths = append(paths, s.path(r.ID, name))
	}
	return paths
}

// syncDir makes the names in a volume's directory durable.
func (s *Store) syncDir(id string) error { return durable.SyncDir(s.dir(id)) }
