// Package treetar carries a tree of files as a tar stream between this host and a guest, in either direction. It
// owns the format (docs/inside/formats/agent-protocol.md, "Trees"), the order of entries, and the bounds of what it reads;
// it opens and makes no file: a Source reads them, a Target makes them. The client and the agent call it. The trap:
// a stream that Unpack reads is foreign. A Target gets single names, and must not follow a link in place of one.
package treetar

import (
	"io/fs"
	"time"
)

// Records of ours in PAX headers. A file is one entry, or a row of them with one name, its pieces.
const (
	recordAt   = "FORKD.at"   // where in the file this piece is; absent: 0
	recordMore = "FORKD.more" // another piece follows
	recordNote = "FORKD.note" // the entry is no file but a note about one
	recordText = "FORKD.text" // the text of a note, for people
)

// Kinds of notes.
const (
	noteSkipped = "skipped" // it is no file, directory or link
	noteFailed  = "failed"  // it could not be read
	noteEnd     = "end"     // the last entry; with a text if it is the end too early
)

const (
	// maxPiece bounds a piece of a file.
	maxPiece = 256 << 10
	// maxName bounds a path in the tree and a link's text.
	maxName = 4096
	// maxSize bounds a file, holes included.
	maxSize = 1 << 44
	// maxRecords bounds the PAX records of an entry. Pack writes at most five.
	maxRecords = 16
	// rootName is the name of the tree itself.
	rootName = "."
)

// Meta is what is kept of a file beside its content.
type Meta struct {
	Mode    fs.FileMode // permission bits alone
	ModTime time.Time   // zero: not kept
}

// Tally hears what becomes of the parts of a tree. Its functions may be nil. Names are relative to the tree, "."
// for the tree itself.
type Tally struct {
	// Copied hears of each file, directory and link.
	Copied func()
	// Failed hears what could not be copied: what the sender could not read is a *SenderError. An error ends the copy.
	Failed func(name string, err error) error
	// Skipped hears what was left out, and why.
	Skipped func(name, why string)
	// Progress hears the bytes of content that went over.
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
