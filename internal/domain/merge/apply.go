package merge

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/guestdiff"
)

// batch is the number of paths for one run of a program in the guest.
const batch = 100

// apply makes all changes: first it removes, from the leaves up, then it makes, from the root down,
// and last it sets owners and modes.
func (p *plan) apply(ctx context.Context) error {
	if err := p.removeAll(ctx); err != nil {
		return broken("nothing but deletions has been changed", err)
	}
	for i, s := range p.steps {
		if s.made == nil {
			continue
		}
		if err := p.make(ctx, s); err != nil {
			return broken(fmt.Sprintf("%d of %d changes are made, and it stopped at %s", i, len(p.steps), s.path), err)
		}
	}
	if err := p.dress(ctx); err != nil {
		return broken("all files are changed, but some have another owner or mode", err)
	}
	return nil
}

// broken returns the error of a merge that stopped in between.
func broken(how string, err error) error {
	return fmt.Errorf("the merge is not complete (%s): %w", how, err)
}

// removeAll removes without recursion: a folder that has got an entry meanwhile stays.
func (p *plan) removeAll(ctx context.Context) error {
	var program []string
	var paths []string
	flush := func() error {
		if len(paths) == 0 {
			return nil
		}
		args := append(slices.Clone(program), paths...)
		paths = nil
		return p.sides.ours.run(ctx, args...)
	}
	for _, s := range slices.Backward(p.steps) {
		if !s.remove {
			continue
		}
		next := []string{"rm", "-f"} // paths are absolute, so none looks like a flag
		if s.old.Mode.IsDir() {
			next = []string{"rmdir"}
		}
		if !slices.Equal(next, program) || len(paths) == batch {
			if err := flush(); err != nil {
				return err
			}
			program = next
		}
		paths = append(paths, s.path)
	}
	return flush()
}

// make makes one entry.
func (p *plan) make(ctx context.Context, s step) error {
	ours := p.sides.ours
	switch {
	case s.made.Mode.IsDir():
		if s.old != nil && !s.remove {
			return nil
		}
		return ours.makeDir(ctx, s.path)
	case kind(s.made) == fs.ModeSymlink:
		if s.content == kept {
			return nil
		}
		return ours.link(ctx, s.path, s.made.Target)
	case s.content == merged:
		return ours.write(ctx, s.path, s.made, strings.NewReader(s.text))
	case s.content == kept:
		return nil
	}
	return p.copy(ctx, s)
}

// copy sends a file from theirs to ours, without keeping it.
func (p *plan) copy(ctx context.Context, s step) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	read := make(chan error, 1)
	go func() {
		err := p.sides.theirs.read(ctx, s.path, maxFile, w)
		w.CloseWithError(err)
		read <- err
	}()
	err := p.sides.ours.write(ctx, s.path, s.made, r)
	r.CloseWithError(io.ErrClosedPipe)
	if readErr := <-read; readErr != nil && err != nil {
		return sandbox.Errorf(sandbox.ErrGuestGone, "", "copy it from theirs: %w", readErr)
	}
	return err
}

// dress sets owners and modes where they differ from those of a new file, or from the file that is
// replaced. An owner comes first: setting it clears the setuid bit.
func (p *plan) dress(ctx context.Context) error {
	owners, modes := map[string][]string{}, map[string][]string{}
	for _, s := range p.steps {
		if s.made == nil {
			continue
		}
		now := s.before()
		moved := ownerOf(s.made) != ownerOf(&now)
		if moved {
			o := fmt.Sprintf("%d:%d", s.made.UID, s.made.GID)
			owners[o] = append(owners[o], s.path)
		}
		bits := unixMode(s.made.Mode)
		if kind(s.made) != fs.ModeSymlink && (moved && bits > 0o777 || bits != unixMode(now.Mode)) {
			m := fmt.Sprintf("%o", bits)
			modes[m] = append(modes[m], s.path)
		}
	}
	if err := p.inBatches(ctx, []string{"chown", "-h"}, owners); err != nil {
		return err
	}
	return p.inBatches(ctx, []string{"chmod"}, modes)
}

// before returns owner and mode that a path has before they are set. The agent gives a file that it
// writes the permissions of made, and a new file to root.
func (s step) before() guestdiff.Entry {
	var now guestdiff.Entry
	if s.old != nil && !s.remove {
		now = *s.old
	}
	switch {
	case s.made.Mode.IsDir() && (s.old == nil || s.remove):
		now.Mode = 0o755
	case s.made.Mode.IsRegular() && s.content != kept:
		now.Mode = s.made.Mode.Perm()
		if now.Mode == 0 {
			now.Mode = 0o666 // the agent's default
		}
	}
	return now
}

// inBatches runs a program for the paths of each value.
func (p *plan) inBatches(ctx context.Context, program []string, by map[string][]string) error {
	for _, value := range slices.Sorted(maps.Keys(by)) {
		for paths := range slices.Chunk(by[value], batch) {
			args := append(append(slices.Clone(program), value), paths...)
			if err := p.sides.ours.run(ctx, args...); err != nil {
				return err
			}
		}
	}
	return nil
}

// unixMode returns the permissions of a mode, with setuid, setgid and the sticky bit.
func unixMode(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for from, to := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&from != 0 {
			bits |= to
		}
	}
	return bits
}
