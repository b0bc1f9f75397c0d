package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Format is the version of the records. The package reads no other version.
const Format = 1

const (
	recordFile = "volume.json"
	maxRecord  = 1 << 20
	maxFiles   = 32 // overlay files of a stack; each is an open file of a VM
	maxLayers  = 64
)

// Limits of a volume's size, in bytes. MinBytes is the size of the file system that a new volume has before
// its first mount.
const (
	MinBytes = 64 << 20
	MaxBytes = 1 << 40
)

var (
	// NamePattern matches the names of volumes. E2B's names have the same characters.
	NamePattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)
	idPattern     = regexp.MustCompile(`^vol-[0-9a-f]{24}$`)
	filePattern   = regexp.MustCompile(`^[0-9]{8}$`)
	tenantPattern = regexp.MustCompile(`^([a-z0-9_]{1,24})?$`)
)

// Volume describes a volume.
type Volume struct {
	ID      string    // unique and never reused
	Owner   string    // its tenant; empty for the operator
	Name    string    // unique within its tenant
	Bytes   int64     // size of the disk
	Created time.Time // of this volume, not of the one it was cloned from
	// From is the name of the volume that this one was cloned from, or empty.
	From string
	// ReadOnly marks a snapshot of a volume, which is not written.
	ReadOnly bool
	// Holder is the sandbox that has the volume, or empty.
	Holder string
	// StoredBytes is the space of its files, including those shared with clones, without its layers.
	StoredBytes int64
}

// record is the durable form, docs/inside/formats/volume.md.
type record struct {
	Format   int        `json:"format"`
	ID       string     `json:"id"`
	Owner    string     `json:"owner,omitempty"`
	Name     string     `json:"name"`
	Bytes    int64      `json:"bytes"`
	Created  int64      `json:"created"` // milliseconds since 1970
	From     string     `json:"from,omitempty"`
	ReadOnly bool       `json:"read_only,omitempty"`
	Backing  []layer.ID `json:"backing,omitempty"`
	Files    []string   `json:"files"` // bottom up
	// Next is a file that may have become the top since the record was written.
	Next string `json:"next,omitempty"`
	// Alt is the top of another stack, which replaces this one if a rollback or a resume commits.
	Alt *alternative `json:"alt,omitempty"`
	// Counter is the number of the next file.
	Counter int `json:"counter"`
}

type alternative struct {
	Backing []layer.ID `json:"backing"`
	File    string     `json:"file"`
}

func (r *record) clone() *record {
	c := *r
	c.Files, c.Backing = slices.Clone(r.Files), slices.Clone(r.Backing)
	return &c
}

// newFile returns the name of another file.
func (r *record) newFile() string {
	r.Counter++
	return fmt.Sprintf("%08d", r.Counter)
}

func (r *record) check(id string) error {
	switch {
	case r.Format != Format:
		return fmt.Errorf("format is %d, want %d", r.Format, Format)
	case r.ID != id || !idPattern.MatchString(id):
		return errors.New("it belongs to another volume")
	case !tenantPattern.MatchString(r.Owner) || !NamePattern.MatchString(r.Name):
		return fmt.Errorf("its owner or name %q is invalid", ellipsis.Clip(r.Name, 80))
	case r.Bytes < MinBytes || r.Bytes > MaxBytes || r.Bytes%layer.BlockSize != 0:
		return fmt.Errorf("it has %d bytes", r.Bytes)
	case len(r.Files) == 0 || len(r.Files) > maxFiles+2 || len(r.Backing) > maxLayers:
		return fmt.Errorf("it has %d files and %d layers", len(r.Files), len(r.Backing))
	}
	names := r.Files
	if r.Next != "" {
		names = append(slices.Clip(names), r.Next)
	}
	if r.Alt != nil {
		names = append(slices.Clip(names), r.Alt.File)
	}
	for i, name := range names {
		if !filePattern.MatchString(name) || slices.Contains(names[:i], name) {
			return fmt.Errorf("file name %q", ellipsis.Clip(name, 80))
		}
	}
	return nil
}

func readRecord(dir string) (*record, error) {
	b, err := durable.ReadFile(filepath.Join(dir, recordFile), maxRecord)
	if err != nil {
		return nil, err
	}
	return decodeRecord(b, filepath.Base(dir))
}

func decodeRecord(b []byte, id string) (*record, error) {
	r := new(record)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, err
	}
	return r, r.check(id)
}

func (r *record) write(dir string) error {
	if err := r.check(r.ID); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return durable.Rewrite(filepath.Join(dir, recordFile), append(b, '\n'))
}

// volume returns the public form.
func (r *record) volume(dir, holder string) Volume {
	v := Volume{ID: r.ID, Owner: r.Owner, Name: r.Name, Bytes: r.Bytes, Created: time.UnixMilli(r.Created), From: r.From,
		ReadOnly: r.ReadOnly, Holder: holder}
	for _, name := range append(slices.Clip(r.Files), r.Next) {
		if name != "" {
			v.StoredBytes += stored(filepath.Join(dir, name))
		}
	}
	return v
}

// stored returns the space of a file, or 0 if it is missing.
func stored(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return blocksOf(st) * 512
}
