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

// maxEntries limits the entries of one listing.
const maxEntries = 50_000

var errTooMany = fmt.Errorf("more than %d entries", maxEntries)

// lister collects the entries of a directory.
type lister struct {
	ctx   context.Context
	found []*filesystem.EntryInfo
}

// list walks the directory at path to depth levels. It follows links in path, but no links below
// it.
func (l *lister) list(path string, depth int) error {
	dir, err := Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if errors.Is(err, unix.ENOTDIR) && isThere(path) {
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

// walk lists dir and closes it. Its entries are below real, and their shown paths are below shown.
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
		if errors.Is(err, unix.ENOENT) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return err // for example in a directory with read but no search permission
		}
		if l.found = append(l.found, e); len(l.found) > maxEntries {
			return errTooMany
		}
		if depth == 1 || !strings.HasPrefix(e.GetPermissions(), "d") {
			continue
		}
		sub, err := Open(at, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
		if err != nil {
			continue // skip the contents of directories that are gone or unreadable
		}
		if err := l.walk(sub, at, filepath.Join(shown, name), depth-1); err != nil {
			return err
		}
	}
	return nil
}

// names reads at most one name more than a listing may have, so a directory with millions of
// entries costs little memory.
func (l *lister) names(dir *os.File) ([]string, error) {
	names, err := dir.Readdirnames(maxEntries - len(l.found) + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}
