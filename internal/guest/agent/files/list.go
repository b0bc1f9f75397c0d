package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
)

// maxEntries bounds one listing.
const maxEntries = 50_000

var errTooMany = fmt.Errorf("more than %d entries", maxEntries)

// lister collects what is in a folder.
type lister struct {
	ctx   context.Context
	found []*filesystem.EntryInfo
}

// list walks the folder at path to depth levels. The path may lead there over
// links; below it none is followed.
func (l *lister) list(path string, depth int) error {
	dir, err := Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err == unix.ENOTDIR && isThere(path) {
		return fmt.Errorf("it is not a directory: %w", err)
	}
	if err != nil {
		return err
	}
	real, err := realPath(dir)
	if err != nil {
		_ = dir.Close()
		return err
	}
	return l.walk(dir, real, path, depth)
}

func isThere(path string) bool {
	at, err := Open(path, unix.O_PATH)
	if err != nil {
		return false
	}
	return at.Close() == nil
}

// walk lists dir, which it closes; entries lie below real and are shown below
// shown.
func (l *lister) walk(dir *os.File, real, shown string, depth int) error {
	names, err := l.names(dir)
	_ = dir.Close()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		at := filepath.Join(real, name)
		e, err := Entry(at, filepath.Join(shown, name))
		if err == unix.ENOENT {
			continue // it ended meanwhile
		}
		if err != nil {
			return err // such as a folder that shows names and no more
		}
		if l.found = append(l.found, e); len(l.found) > maxEntries {
			return errTooMany
		}
		if depth == 1 || !strings.HasPrefix(e.GetPermissions(), "d") {
			continue
		}
		sub, err := Open(at, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
		if err != nil {
			continue // a folder that went away or may not be read shows no contents
		}
		if err := l.walk(sub, at, filepath.Join(shown, name), depth-1); err != nil {
			return err
		}
	}
	return nil
}

// names reads as many names as a listing may have and one more, so that a folder
// of millions costs no memory.
func (l *lister) names(dir *os.File) ([]string, error) {
	names, err := dir.Readdirnames(maxEntries - len(l.found) + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}
