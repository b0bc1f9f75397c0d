package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

func baseOf(path string) string { return filepath.Base(path) }

// left describes the end of a file.
type left struct {
	head  Head      // of its last whole line; Seq 0 without one
	torn  hash.Hash // of the incomplete text after it; may be nil
	owed  bool      // the file does not end with a newline
	bytes int64
	known bool // the file has a line with the wanted number, but another hash
}

// leftOf reads a file to its end. It also checks whether the line recorded by the head is unchanged.
func leftOf(path string, knew Head) (left, error) {
	var l left
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	defer f.Close()
	for s := newScanner(f); ; {
		p, err := s.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return l, err
		}
		l.take(p, knew)
	}
	if l.torn != nil && l.owed { // the newline that will be appended
		l.torn.Write([]byte{'\n'})
	}
	return l, nil
}

func (l *left) take(p piece, knew Head) {
	l.bytes += int64(len(p.raw))
	l.owed = !p.end
	if p.whole {
		l.head, l.torn = Head{Seq: p.entry.Seq, Hash: hashOf(p.line)}, nil
		l.known = l.known || l.head.Seq == knew.Seq && l.head.Hash != knew.Hash
		return
	}
	if l.torn == nil {
		l.torn = sha256.New()
	}
	l.torn.Write(p.raw)
}

// recover finds the end of the log and queues notes about changes since the head was written.
func (w *writer) recover() error {
	knew, there, headErr := readHead(w.cfg.Path)
	l, err := leftOf(w.cfg.Path, knew)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	w.size, w.torn, w.owed, w.head = l.bytes, l.torn, l.owed, l.head
	changed := l.known
	if l.head.Seq == 0 {
		all, err := rolledFiles(w.cfg.Path)
		if err != nil {
			return fmt.Errorf("read audit log: %w", err)
		}
		w.head.Hash = Zero
		if len(all) > 0 {
			newest := all[len(all)-1].path
			before, err := leftOf(newest, knew)
			if err != nil {
				return fmt.Errorf("read audit log: %w", err)
			}
			changed = before.known
			if before.head.Seq > 0 {
				w.head = before.head
			}
			w.notes = append(w.notes, Entry{Action: ActionRolled, Result: OK, File: baseOf(newest)})
		}
	}
	switch {
	case headErr != nil:
		w.cut(0, headErr.Error())
	case there && knew.Seq > w.head.Seq:
		w.cut(knew.Seq, fmt.Sprintf("lines %d to %d are not there any more", w.head.Seq+1, knew.Seq))
		w.head.Seq = knew.Seq // numbers are never reused
	case changed:
		w.cut(knew.Seq, fmt.Sprintf("line %d differs from the written one", knew.Seq))
	}
	return nil
}

// cut records that the log has changed since it was last written.
func (w *writer) cut(head uint64, what string) {
	w.cfg.Log.Error("the audit log is not as it was left", "file", w.cfg.Path, "what", what)
	w.notes = append(w.notes, Entry{Action: ActionCut, Result: Failed, Head: head, Note: what})
}

// foreignSuffix is appended to the name of a file written by an earlier forkd, whose lines are in no chain.
const foreignSuffix = ".unchained"

// moveForeign renames a file that has lines, but no line of this log format.
func (w *writer) moveForeign() error {
	f, err := os.Open(w.cfg.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	p, err := newScanner(f).next()
	if errors.Is(err, io.EOF) || err == nil && (p.whole || !p.end) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, there, err := readHead(w.cfg.Path); there || err != nil {
		return nil // it is a log; a verification reports its problems
	}
	to := w.cfg.Path + foreignSuffix
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%s is not an audit log, and %s is in the way of moving it aside", w.cfg.Path, to)
	}
	w.cfg.Log.Info("audit log of an earlier forkd moved aside", "to", to)
	return os.Rename(w.cfg.Path, to)
}

// firstLine returns a file's first whole line.
func firstLine(path string) (Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return Entry{}, err
	}
	defer f.Close()
	for s := newScanner(f); ; {
		p, err := s.next()
		if errors.Is(err, io.EOF) {
			return Entry{}, fmt.Errorf("%s has no line", path)
		}
		if err != nil || p.whole {
			return p.entry, err
		}
	}
}
