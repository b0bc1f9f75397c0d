package guestdump

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Open reads the guest's state of a snapshot. dir is the store of a daemon, which may be running.
func Open(dir, tag string) (Dump, error) {
	snapshots := filepath.Join(dir, "snapshots")
	if _, err := os.Stat(filepath.Join(snapshots, tag)); err != nil { // before a folder is created for layers
		return Dump{}, fmt.Errorf("%s has no snapshot %q: %w", dir, tag, err)
	}
	layers, err := store.Open(filepath.Join(dir, "layers"), store.Options{})
	if err != nil {
		return Dump{}, err
	}
	f, err := snapshot.Peek(snapshots, layers, tag)
	if err != nil {
		return Dump{}, err
	}
	defer f.Close()
	st, err := f.State().Stat()
	if err != nil {
		return Dump{}, err
	}
	d, err := Read(io.NewSectionReader(f.State(), 0, st.Size()), f.Memory, f.Memory.Size())
	if err != nil {
		return Dump{}, fmt.Errorf("snapshot %s: %w", tag, err)
	}
	return d, nil
}
