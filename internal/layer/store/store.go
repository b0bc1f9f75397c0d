package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/durable"
	"github.com/forkd/forkd/internal/failpoint"
	"github.com/forkd/forkd/internal/layer"
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
	dir  string
	opt  Options
	free func(dir string) (int64, error) // bytes; tests replace it

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
	s := &Store{dir: dir, opt: opt, free: freeBytes, open: map[layer.ID]*shared{}}
	s.loadChecked()
	return s, nil
}

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

func (s *Store) layerPath(id layer.ID) string { return s.path(layersDir, id.String()) }

func (s *Store) digestsPath(id layer.ID) string { return s.layerPath(id) + digestsSuffix }

// lock keeps other processes, and other goroutines of this one, from changing
// names in the store. The kernel drops it when the process dies.
func (s *Store) lock() (unlock func(), err error) {
	f, err := os.OpenFile(s.path(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock layer store: %w", err)
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock layer store: %w", err)
	}
	return func() {
		// Not by closing alone: a child that is being started may still have a copy.
		flock(f, unix.LOCK_UN)
		f.Close()
	}, nil
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// tempFileLocked makes a locked file in the store's tmp. Its lock tells it from one
// whose process is gone. The caller has the store's lock, or GC could come
// between the making and the locking.
func (s *Store) tempFileLocked() (*os.File, error) {
	f, err := os.OpenFile(s.path(tempDir, layer.NewID().String()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		discard(f)
		return nil, err
	}
	return f, nil
}

// writeTemp writes a small file to tmp, durable but not named yet. The caller
// renames or discards it.
func (s *Store) writeTemp(b []byte) (*os.File, error) {
	if err := s.room(int64(len(b))); err != nil {
		return nil, err
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	f, err := s.tempFileLocked()
	unlock()
	if err != nil {
		return nil, layer.NoSpace(err)
	}
	if err = failpoint.At(failpoint.LayerPrefix + "temp.write"); err == nil {
		_, err = f.Write(b)
	}
	if err == nil {
		err = failpoint.At(failpoint.LayerPrefix + "temp.sync")
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		discard(f)
		return nil, layer.NoSpace(err)
	}
	return f, nil
}

// discard removes a temporary file.
func discard(f *os.File) {
	os.Remove(f.Name())
	f.Close()
}

// notFound gives a missing file the store's sentinel.
func notFound(what string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	return fmt.Errorf("%s: %w", what, err)
}
