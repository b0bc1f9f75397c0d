package snapshot

import "errors"

// Sentinels for callers to branch on.
var (
	// ErrNotFound: there is no snapshot with this tag.
	ErrNotFound = errors.New("not found")
	// ErrExists: the tag is taken by a snapshot, possibly one being written.
	ErrExists = errors.New("snapshot exists already")
	// ErrTag: the tag is invalid.
	ErrTag = errors.New("bad snapshot tag")
	// ErrNotRestorable: files are damaged or missing, or of another format.
	ErrNotRestorable = errors.New("snapshot is not restorable")
	// ErrNoDigests: the content digests are not written yet.
	ErrNoDigests = errors.New("content digests are not ready yet")
)
