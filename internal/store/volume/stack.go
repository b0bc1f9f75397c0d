package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/overlay"
)

// Stack is the content of a volume: layers, and the paths of overlay files over them, bottom up. The last file
// may be written.
type Stack struct {
	Backing []layer.ID // base first
	Files   []string   // bottom up
}

// Take gives a volume to a sandbox, which may write to it until Release, and returns its stack.
func (s *Store) Take(owner, name, sandbox string) (Volume, Stack, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findLocked(owner, name)
	if err != nil {
		return Volume{}, Stack{}, err
	}
	if by := s.held[r.ID]; by != "" {
		return Volume{}, Stack{}, fmt.Errorf("%w: sandbox %s has volume %s", ErrHeld, by, r.Name)
	}
	if r.ReadOnly {
		return Volume{}, Stack{}, fmt.Errorf("%w: volume %s is a snapshot and can only be read or cloned", ErrInvalid, r.Name)
	}
	if err := s.restLocked(r.ID); err != nil { // at the release there was no room
		return Volume{}, Stack{}, err
	}
	s.held[r.ID] = sandbox
	return r.volume(s.dir(r.ID), sandbox), Stack{slices.Clone(r.Backing), s.paths(r)}, nil
}

// Move gives a volume that the sandbox from has to another sandbox, which may write to it until Release. from no
// longer writes to it.
func (s *Store) Move(id, from, to string) (Volume, Stack, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.all[id]
	if r == nil {
		return Volume{}, Stack{}, fmt.Errorf("%w: %.70s", ErrNotFound, id)
	}
	if by := s.held[id]; by != from {
		return Volume{}, Stack{}, fmt.Errorf("%w: volume %s is not in sandbox %s any more", ErrHeld, r.Name, from)
	}
	err := s.recordLateLocked(id)
	if err == nil {
		err = passed("move", func() error { return s.restLocked(id) })
	}
	if err != nil {
		return Volume{}, Stack{}, err
	}
	s.held[id] = to
	return r.volume(s.dir(id), to), Stack{slices.Clone(r.Backing), s.paths(r)}, nil
}

// Share returns the immutable content of a volume that no sandbox has. The caller links the files.
func (s *Store) Share(owner, name string) (Volume, Stack, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findLocked(owner, name)
	if err != nil {
		return Volume{}, Stack{}, err
	}
	frozen, err := s.freezeLocked(r)
	if err != nil {
		return Volume{}, Stack{}, err
	}
	return r.volume(s.dir(r.ID), ""), Stack{slices.Clone(r.Backing), frozen}, nil
}

// NewTop makes an empty file for the top of a held volume. The volume has it if Settle names it. alt is the
// backing of a stack that would replace the present one; if it is nil, the file is for the present stack. The record
// must name the present stack before: it has room for one file of an unknown state.
func (s *Store) NewTop(id string, alt []layer.ID) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.all[id]
	if r == nil {
		return nil, fmt.Errorf("%w: %.70s", ErrNotFound, id)
	}
	if err := s.recordLateLocked(id); err != nil {
		return nil, err
	}
	next := r.clone()
	name := next.newFile()
	f, err := os.OpenFile(s.path(id, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a file of volume %s: %w", r.Name, err)
	}
	if alt != nil {
		next.Alt = &alternative{slices.Clone(alt), name}
	} else {
		next.Next = name
	}
	err = s.syncDir(id)
	if err == nil {
		err = next.write(s.dir(id))
	}
	if err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, fmt.Errorf("make a file of volume %s: %w", r.Name, err)
	}
	s.replaceLocked(r, next)
	return f, nil
}

// Settle records the present stack of a held volume. It removes files that are no part of it. After an error the old
// record has the same content, and the next operation on the volume records the stack first.
func (s *Store) Settle(id string, now Stack) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settleLocked(id, now)
}

// recordLateLocked records the stack of a volume that Settle could not record.
func (s *Store) recordLateLocked(id string) error {
	if now, late := s.unrecorded[id]; late {
		return s.settleLocked(id, now)
	}
	return nil
}

func (s *Store) settleLocked(id string, now Stack) error {
	r := s.all[id]
	if r == nil {
		return fmt.Errorf("%w: %.70s", ErrNotFound, id)
	}
	next := r.clone()
	next.Next, next.Alt, next.Files, next.Backing = "", nil, nil, slices.Clone(now.Backing)
	for _, path := range now.Files {
		if filepath.Dir(path) != s.dir(id) {
			return fmt.Errorf("volume %s has no file %s", r.Name, filepath.Base(path))
		}
		next.Files = append(next.Files, filepath.Base(path))
	}
	s.unrecorded[id] = Stack{slices.Clone(now.Backing), slices.Clone(now.Files)}
	err := passed("settle", func() error {
		if !slices.Equal(r.Backing, next.Backing) && len(next.Backing) > 0 {
			if err := s.cfg.Pins.Pin(pinPrefix+id, next.Backing...); err != nil {
				return err
			}
		}
		return next.write(s.dir(id))
	})
	if err != nil {
		return fmt.Errorf("settle volume %s: %w", r.Name, err)
	}
	delete(s.unrecorded, id)
	s.replaceLocked(r, next)
	return nil
}

// Adopt gives a volume to a sandbox that had it when the process ended. now is the stack in its journal; the
// record follows it. The stack of a paused sandbox is empty: its volume is at rest.
func (s *Store) Adopt(id, sandbox string, now Stack) error {
	s.mu.Lock()
	r := s.all[id]
	if r == nil {
		s.mu.Unlock()
		return fmt.Errorf("%w: %.70s", ErrNotFound, id)
	}
	s.held[id] = sandbox
	s.mu.Unlock()
	if len(now.Files) == 0 {
		return nil
	}
	for _, path := range now.Files {
		if _, err := os.Stat(path); err != nil { // the record is newer: the files have become layers
			return nil //nolint:nilerr // the record has the same content
		}
	}
	return s.Settle(id, now)
}

// Release takes a volume from its holder, whose VM has ended.
func (s *Store) Release(id, sandbox string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[id] != sandbox {
		return nil
	}
	defer delete(s.held, id)
	defer delete(s.unrecorded, id)
	_ = s.recordLateLocked(id) // after an error the old record has the same content
	return s.restLocked(id)
}

// restLocked brings the record of a volume to rest.
func (s *Store) restLocked(id string) error {
	r := s.all[id]
	if r == nil || r.Next == "" && r.Alt == nil {
		return nil
	}
	next := r.clone()
	if st, err := os.Stat(s.path(id, r.Next)); r.Next != "" && err == nil && st.Size() > 0 {
		next.Files = append(next.Files, r.Next) // the switch happened
	}
	next.Next, next.Alt = "", nil
	if err := passed("rest", func() error { return next.write(s.dir(id)) }); err != nil {
		return fmt.Errorf("release volume %s: %w", r.Name, err)
	}
	s.replaceLocked(r, next)
	return nil
}

// Rest brings the records of all volumes to rest that no sandbox has. It is called once all sandboxes of an
// earlier process are adopted.
func (s *Store) Rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, r := range s.all {
		if s.held[id] != "" {
			continue
		}
		if err := s.restLocked(id); err != nil {
			s.cfg.Log.Error("bring a volume to rest", "volume", r.Name, "err", err)
		}
		s.tidyLocked(r)
	}
}

// tidyLocked removes files that the record does not name.
func (s *Store) tidyLocked(r *record) {
	entries, err := os.ReadDir(s.dir(r.ID))
	if err != nil {
		return
	}
	names := r.names()
	for _, en := range entries {
		if name := en.Name(); name != recordFile && !slices.Contains(names, name) {
			os.Remove(s.path(r.ID, name))
		}
	}
}

// openAll opens overlay files for reading.
func openAll(paths []string) (files []*os.File, err error) {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// Base opens overlay files as a part of the base of a disk of size bytes, over the extents below. The caller
// closes the files.
func Base(paths []string, size int64, below []extent.Extent) ([]extent.Extent, []*os.File, error) {
	files, err := openAll(paths)
	if err == nil {
		below, err = extentsOf(files, size, below)
	}
	if err != nil {
		closeAll(files)
		return nil, nil, fmt.Errorf("open a volume's files: %w", err)
	}
	return below, files, nil
}

func extentsOf(files []*os.File, size int64, below []extent.Extent) ([]extent.Extent, error) {
	for _, f := range files {
		d, err := overlay.Open(f, size, nil)
		if err != nil {
			return nil, err
		}
		var own []extent.Extent
		err = d.Allocated(func(off, n int64, zero bool) error {
			own = append(own, extent.Extent{File: f, FileOffset: off, Offset: off, Length: n})
			return nil
		})
		if err != nil {
			return nil, err
		}
		below = extent.Over(below, own)
	}
	return below, nil
}
