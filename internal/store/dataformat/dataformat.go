package dataformat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/forkd/forkd/internal/sys/durable"
)

// Number is the format written by this program. Increase it with each change that older programs
// cannot read: of snapshots, layers, journals, records of paused sandboxes, or the control protocol
// of VMs. Programs keep reading all lower numbers from 1 on, the format of 0.1.0.
const Number = 2

// FileName is the name of the mark in a data directory.
const FileName = "format.json"

// maxBytes limits the file.
const maxBytes = 4096

// ErrNewer is wrapped by the error for a directory of a newer program, or with a mark that cannot be
// read.
var ErrNewer = errors.New("this program cannot use the data directory")

// mark is the content of the file.
type mark struct {
	Format  int    `json:"format"`
	Program string `json:"program"` // version of the program that wrote it
}

// Check returns an error that wraps ErrNewer if this program cannot use the directory. It only
// reads. A directory that is missing, or has no mark, is fine.
func Check(dir string) error {
	_, err := read(dir)
	return err
}

// read returns the mark, or the zero value if there is none.
func read(dir string) (mark, error) {
	path := filepath.Join(dir, FileName)
	b, err := durable.ReadFile(path, maxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, fmt.Errorf("%w: read %s: %w", ErrNewer, path, err)
	}
	var m mark
	if err := json.Unmarshal(b, &m); err != nil || m.Format < 1 {
		return mark{}, fmt.Errorf("%w: %s is damaged: remove the file if no forkd newer than this one has used "+
			"the directory", ErrNewer, path)
	}
	if m.Format > Number {
		return mark{}, fmt.Errorf("%w: forkd %.60q wrote %s in format %d, and this program knows up to %d: "+
			"start that version or a later one", ErrNewer, m.Program, dir, m.Format, Number)
	}
	return m, nil
}

// Raise checks the directory, and marks it with this program's format. program is its version. It
// writes only if the number changes, and returns when the mark is on disk. The caller holds the lock of
// the directory, and calls Raise before it opens the stores.
func Raise(dir, program string) error {
	m, err := read(dir)
	if err != nil || m.Format == Number {
		return err
	}
	b, err := json.Marshal(mark{Format: Number, Program: program})
	if err != nil {
		return err
	}
	err = durable.Rewrite(filepath.Join(dir, FileName), append(b, '\n'))
	if m.Format == 0 && Number == 1 && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) {
		return nil // a directory without a mark is read as format 1, and a full disk must not stop the daemon
	}
	if err != nil {
		return fmt.Errorf("mark the format of the data directory: %w", err)
	}
	return nil
}
