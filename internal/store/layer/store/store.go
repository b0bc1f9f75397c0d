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

// Sentinels that callers branch on; package layer has more.
var (
	// ErrNotFound: there is no layer of that ID, or no pin of that name.
	ErrNotFound = errors.New("not found in the layer store")
	// ErrName: a pin cannot have that name.
	ErrName = errors.New("bad name of a pin")
	// ErrDamaged: a record of the store itself cannot be trusted.
	ErrDamaged = errors.New("layer store is damaged")
)

const (
	layersDir = "layers" // ID, and ID.digests beside it
	pinsDir   = "pins"   // one record for each name
	tempDir   = "tmp"    // what is written, and what is being removed
	lockFile  = "lock"

	digestsSuffix = ".digests"
)

// Options of a store.
type Options struct {
	// Reserve is how much of the disk must stay free, in bytes: a full disk hurts
	// others than the one who filled it.
	Reserve int64
}

// Store is one directory of layers. Several processes may have it open. It is
// safe for concurrent use and needs no closing; its handles and drafts do.
type Store struct {
	folder

	mu   sync.Mutex
	open map[layer.ID]*shared // by handles of this process

	checks checks
}

// Open opens the store in dir, and makes it if there is none. It removes
// nothing; GC does.
func Open(dir string, opt Options) (*Store, error) {
	for _, sub := range []string{layersDir, pinsDir, tempDir} {
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

// notFound gives a missing file the store's sentinel.
func notFound(what string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	return fmt.Errorf("%s: %w", what, err)
}
