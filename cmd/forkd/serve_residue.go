//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// residue is what a daemon that does not get to serve would leave: directories that were not there before it.
type residue struct {
	dirs    []string // the daemon's own
	parents []string // those above that were missing, innermost first
}

// missing are those of the directories that are not there.
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

// remove removes them, unless another daemon has taken one meanwhile.
func (r residue) remove() {
	for _, dir := range r.dirs {
		if !locked(dir) {
			_ = os.RemoveAll(dir)
		}
	}
	for _, dir := range r.parents {
		_ = os.Remove(dir) // if it is empty
	}
}

// locked reports whether a daemon holds a directory.
func locked(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}
