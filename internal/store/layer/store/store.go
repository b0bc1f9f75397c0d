package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Sentinels for callers to branch on. Package layer has more.
var (
	// ErrNotFound: there is no layer with this ID, or no pin with this name.
	ErrNotFound = errors.New("not found in the layer store")
	// ErrName: the name is invalid for a pin.
	ErrName = errors.New("bad name of a pin")
	// ErrDamaged: a record of the store itself is damaged.
	ErrDamaged = errors.New("layer store is damaged")
)

const (
	layersDir = "layers" // ID, and ID.digests
	pinsDir   = "pins"   // one record for each name
	tempDir   = "tmp"    // files being written or removed
	lazyDir   = "lazy"   // folders of files that have not arrived whole, by ID
	mountDir  = "served" // where these files are served, by ID
	lockFile  = "lock"

	digestsSuffix = ".digests"
)

// Options configures a store.
type Options struct {
	// Reserve is the space of the disk to keep free, in bytes. A full disk also affects other programs.
	Reserve int64
}

// Store is a directory of layers. Several processes may have it open. It is safe for concurrent use and needs no
// closing; its handles and drafts do.
type Store struct {
	folder folder

	mu   sync.Mutex
	open map[layer.ID]*shared // layers with handles in this process

	checks checks
}

// Open opens the store in dir. It creates the store if it is missing. It removes no files; GC does.
func Open(dir string, opt Options) (*Store, error) {
	for _, sub := range []string{layersDir, pinsDir, tempDir, lazyDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("open layer store: %w", err)
		}
	}
	if err := durable.SyncDir(dir); err != nil {
		return nil, fmt.Errorf("open layer store: %w", err)
	}
	s := &Store{folder: folder{dir: dir, reserve: opt.Reserve, free: freeBytes}, open: map[layer.ID]*shared{}}
	s.loadChecked()
	return s, nil
}

// notFound wraps a missing file's error in ErrNotFound.
func notFound(what string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	return fmt.Errorf("%s: %w", what, err)
}
