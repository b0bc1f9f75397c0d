// Package storeerr has the errors of stores that their callers distinguish. The stores of layers and of snapshots
// return them, and package sandbox gives each one a kind and a reason. They are in a leaf, so that the vocabulary of
// the daemon needs no store.
package storeerr

import (
	"errors"
	"fmt"
	"syscall"
)

// Sentinels for callers to branch on.
var (
	// ErrNotFound: there is no snapshot with this tag.
	ErrNotFound = errors.New("not found")
	// ErrExists: the tag is taken by a snapshot, possibly one being written.
	ErrExists = errors.New("snapshot exists already")
	// ErrTag: the tag is invalid.
	ErrTag = errors.New("bad snapshot tag")
	// ErrNotRestorable: files are damaged or missing, of another format, or made for another CPU.
	ErrNotRestorable = errors.New("snapshot is not restorable")
	// ErrNoDigests: the content digests are not written yet.
	ErrNoDigests = errors.New("content digests are not ready yet")
	// ErrNoSpace: the disk is full, or would be fuller than its owner allows.
	ErrNoSpace = errors.New("not enough disk space")
)

// IsNoSpace reports whether the cause was a full disk.
func IsNoSpace(err error) bool {
	return errors.Is(err, ErrNoSpace) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// NoSpace wraps the error of a full disk in ErrNoSpace. It returns other errors unchanged.
func NoSpace(err error) error {
	if !errors.Is(err, ErrNoSpace) && IsNoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
