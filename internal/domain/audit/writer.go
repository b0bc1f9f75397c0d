package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/forkd/forkd/internal/sys/filelock"
)

// handle is the open file that lines are appended to.
type handle interface {
	io.Writer
	Sync() error
	Close() error
}

// openAppend opens a file of the log for this process only.
func openAppend(path string) (handle, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return f, err
	}
	// Two writers would break each other's chain.
	if err := filelock.Try(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: another daemon writes to it: %w", path, err)
	}
	return f, nil
}

// writer appends lines. It belongs to one goroutine.
//
// It never truncates the file, so the file can be append-only (chattr +a). The beginning of an incomplete line
// stays and is ended with a newline. The next line, ActionTorn, records it.
type writer struct {
	cfg    Config
	f      handle
	size   int64
	rollAt int64 // size at which a new file begins
	// regular means that it is a file, not a terminal or pipe. Terminals and pipes have no head and are not
	// rolled over.
	regular bool
	head    Head      // of the last line written whole
	saved   Head      // beside the log
	torn    hash.Hash // of incomplete text after that line, with its pending newline; may be nil
	owed    bool      // the file does not end with a newline
	notes   []Entry   // to be written before anything else
}

// openWriter opens a log at its end.
func openWriter(c Config) (_ *writer, err error) {
	w := &writer{cfg: c, rollAt: c.MaxBytes, head: Head{Hash: Zero}}
	if st, err := os.Stat(c.Path); err == nil && !st.Mode().IsRegular() {
		w.f, err = c.open(c.Path)
		return w, err
	}
	w.regular = true
	if err := w.moveForeign(); err != nil {
		return nil, err
	}
	if w.f, err = c.open(c.Path); err != nil {
		return nil, err
	}
	if err := w.recover(); err != nil {
		w.f.Close()
		return nil, err
	}
	return w, nil
}

// moved reports whether the log's path no longer refers to the open file.
func (w *writer) moved() bool {
	f, ok := w.f.(interface{ Stat() (os.FileInfo, error) })
	if !ok || !w.regular {
		return false
	}
	own, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(w.cfg.Path)
	return errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(own, there)
}

// append writes a line. After an error the line is missing or incomplete.
func (w *writer) append(e Entry) error {
	if w.torn != nil && e.Action != ActionTorn {
		note := Entry{Time: e.Time, Action: ActionTorn, Result: OK, Torn: hex.EncodeToString(w.torn.Sum(nil))}
		if err := w.append(note); err != nil {
			return err
		}
	}
	e.Chain = w.cfg.chain
	line, head, err := w.head.next(e)
	if err != nil {
		return err
	}
	var buf []byte
	if w.owed {
		buf = append(buf, '\n')
	}
	buf = append(append(buf, line...), '\n')
	n, err := w.f.Write(buf)
	w.size += int64(n)
	if n < len(buf) && err == nil {
		err = io.ErrShortWrite
	}
	return w.wrote(buf[:n], line, head, err)
}

// wrote records how much of a line is in the file.
func (w *writer) wrote(got, line []byte, head Head, err error) error {
	if w.owed && len(got) > 0 {
		w.owed, got = false, got[1:]
	}
	if len(got) >= len(line) { // its newline can come with the next line
		w.head, w.torn, w.owed = head, nil, len(got) == len(line)
		return nil
	}
	if len(got) > 0 {
		if w.torn == nil {
			w.torn = sha256.New()
		}
		w.torn.Write(got)
		w.torn.Write([]byte{'\n'})
		w.owed = true
	}
	return fmt.Errorf("write audit log: %w", err)
}

// settle syncs the written lines and then records them in the head.
func (w *writer) settle() error {
	if !w.regular || w.head == w.saved || w.head.Seq == 0 {
		return nil
	}
	if err := w.f.Sync(); err != nil {
		return fmt.Errorf("sync audit log: %w", err)
	}
	if err := writeHead(w.cfg.Path, w.head); err != nil {
		return fmt.Errorf("write head of audit log: %w", err)
	}
	w.saved = w.head
	return nil
}

// rollOver begins a new file if the current one is full. After an error it is tried again some lines later.
func (w *writer) rollOver() error {
	if !w.regular || w.size < w.rollAt || w.torn != nil || w.owed {
		return nil
	}
	w.rollAt = w.size + w.cfg.MaxBytes/16
	all, err := rolledFiles(w.cfg.Path)
	if err != nil {
		return fmt.Errorf("roll audit log over: %w", err)
	}
	full := nextRolled(w.cfg.Path, all)
	// Create the new file first: an error then leaves the old one in use.
	next, err := w.freshFile()
	if err != nil {
		return fmt.Errorf("roll audit log over: %w", err)
	}
	err = w.f.Sync()
	if err == nil {
		err = os.Rename(w.cfg.Path, full)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("roll audit log over: %w", err), next.Close())
	}
	if err := os.Rename(w.cfg.Path+nextSuffix, w.cfg.Path); err != nil {
		return errors.Join(fmt.Errorf("roll audit log over: %w", err), next.Close(), os.Rename(full, w.cfg.Path))
	}
	w.f.Close()
	w.f, w.size, w.rollAt = next, 0, w.cfg.MaxBytes
	w.notes = append(w.notes, Entry{Action: ActionRolled, Result: OK, File: baseOf(full)})
	w.cfg.Log.Info("audit log rolled over", "file", full, "head", w.head.String())
	return nil
}

// nextSuffix is appended to a new file's name until the old file is renamed.
const nextSuffix = ".next"

func (w *writer) freshFile() (handle, error) {
	if err := os.Remove(w.cfg.Path + nextSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return w.cfg.open(w.cfg.Path + nextSuffix)
}

// writeNotes writes the log's own lines.
func (w *writer) writeNotes() error {
	for len(w.notes) > 0 {
		n := w.notes[0]
		if n.Time.IsZero() {
			n.Time = w.cfg.Now().UTC()
		}
		var victims []rolledFile
		if n.Action == ActionRolled {
			victims, n.Dropped = w.surplus()
		}
		if err := w.append(n); err != nil {
			return err
		}
		w.notes = w.notes[1:]
		for _, v := range victims { // the log has a record of their lines by now
			if err := os.Remove(v.path); err != nil {
				w.cfg.Log.Warn("remove the oldest file of the audit log", "error", err)
			}
		}
	}
	return nil
}

// surplus returns the oldest files beyond the number to keep, and the last line in them or before.
func (w *writer) surplus() (victims []rolledFile, dropped uint64) {
	all, err := rolledFiles(w.cfg.Path)
	if err != nil {
		return nil, 0
	}
	n := max(0, len(all)-w.cfg.Keep)
	if n == len(all) {
		return all, w.head.Seq
	}
	first, err := firstLine(all[n].path)
	if err != nil {
		w.cfg.Log.Warn("read a file of the audit log", "error", err)
		return nil, 0
	}
	return all[:n], first.Seq - 1
}

func (w *writer) close() error { return errors.Join(w.settle(), w.f.Close()) }
