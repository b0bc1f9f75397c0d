// Package treetar copies a tree of files as a tar stream between this host and a guest, in either
// direction. It defines the format (docs/inside/formats/agent-protocol.md, "Trees"), the order of
// entries, and the limits on input. It does not access files itself: a Source reads them, a Target
// creates them. The client and the agent call it.
//
// A stream that Unpack reads is not trusted. A Target gets single names, and must not follow a link
// at such a name.
package treetar

import (
	"io/fs"
	"time"
)

// forkd's own records in PAX headers. A file is one entry, or several consecutive entries (pieces)
// with one name.
const (
	recordAt   = "FORKD.at"   // offset of this piece in the file; if absent, 0
	recordMore = "FORKD.more" // another piece follows
	recordNote = "FORKD.note" // the entry is a note about a file
	recordText = "FORKD.text" // text of a note, for people
)

// Kinds of notes.
const (
	noteSkipped = "skipped" // not a file, directory or link
	noteFailed  = "failed"  // could not be read
	noteEnd     = "end"     // the last entry; a text reports an early end
)

const (
	// maxPiece limits a piece of a file.
	maxPiece = 256 << 10
	// maxName limits a path in the tree and a link's text.
	maxName = 4096
	// maxSize limits a file, including holes.
	maxSize = 1 << 44
	// maxRecords limits the PAX records of an entry. Pack writes at most five.
	maxRecords = 16
	// rootName is the name of the tree itself.
	rootName = "."
)

// Meta is the stored metadata of a file.
type Meta struct {
	Mode    fs.FileMode // only permission bits
	ModTime time.Time   // zero if not stored
}

// Tally receives the results of a copy. Its functions may be nil. Names are relative to the tree,
// with "." for the tree itself.
type Tally struct {
	// Copied is called for each copied file, directory and link.
	Copied func()
	// Failed is called for each failure. If the sender could not read a file, err is a
	// *SenderError. If Failed returns an error, the copy ends.
	Failed func(name string, err error) error
	// Skipped is called for each skipped file, with the reason.
	Skipped func(name, why string)
	// Progress is called with the number of content bytes transferred.
	Progress func(n int)
}

func (t Tally) copied() {
	if t.Copied != nil {
		t.Copied()
	}
}

func (t Tally) failed(name string, err error) error {
	if t.Failed == nil {
		return nil
	}
	return t.Failed(name, err)
}

func (t Tally) skipped(name, why string) {
	if t.Skipped != nil {
		t.Skipped(name, why)
	}
}

func (t Tally) progress(n int) {
	if t.Progress != nil {
		t.Progress(n)
	}
}
