//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/dataformat"
	"github.com/forkd/forkd/internal/sys/filelock"
)

// residue lists the directories a daemon would leave if it fails to start: the ones that did not
// exist before.
type residue struct {
	dirs    []string // the daemon's own
	parents []string // missing parents, innermost first
}

// missing returns the directories that do not exist.
func missing(dirs ...string) (r residue) {
	for _, dir := range dirs {
		if !isMissing(dir) {
			continue
		}
		r.dirs = append(r.dirs, dir)
		for up := filepath.Dir(dir); isMissing(up); up = filepath.Dir(up) {
			r.parents = append(r.parents, up)
		}
	}
	return r
}

func isMissing(dir string) bool {
	_, err := os.Lstat(dir)
	return errors.Is(err, os.ErrNotExist)
}

// remove removes the directories, unless another daemon uses one meanwhile. Files of other programs
// stay, with the directories above them: an image build may have begun in the data directory.
func (r residue) remove() {
	for _, dir := range r.dirs {
		if !locked(dir) {
			removeStarted(dir)
		}
	}
	for _, dir := range r.parents {
		_ = os.Remove(dir) // if it is empty
	}
}

// startedFiles are the files of a daemon that has not started completely.
var startedFiles = []string{"lock", "forkd-run", "events.boot", dataformat.FileName, dataformat.FileName + ".new"}

// removeStarted removes the files and directories of such a daemon below dir, and dir.
func removeStarted(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			removeStarted(path)
		case slices.Contains(startedFiles, e.Name()), strings.HasPrefix(e.Name(), "audit."), e.Type() == os.ModeSocket:
			_ = os.Remove(path)
		}
	}
	_ = os.Remove(dir) // if it is empty
}

// locked reports whether a daemon holds a directory.
func locked(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	return filelock.Try(f) != nil
}
