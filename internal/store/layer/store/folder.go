package store

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/filelock"
)

// folder is the store's directory: the locations of its files, the locks shared by processes, and the check for
// free space. It does not know the content of the files.
type folder struct {
	dir     string
	reserve int64                           // bytes of the disk to keep free
	free    func(dir string) (int64, error) // in bytes; replaced by tests
}

func (d *folder) path(elem ...string) string {
	return filepath.Join(append([]string{d.dir}, elem...)...)
}

func (d *folder) layerPath(id layer.ID) string { return d.path(layersDir, id.String()) }

func (d *folder) digestsPath(id layer.ID) string { return d.layerPath(id) + digestsSuffix }

// lock keeps other processes, and other goroutines of this one, from changing names in the store. The kernel
// releases it when the process dies.
func (d *folder) lock() (unlock func(), err error) {
	f, err := os.OpenFile(d.path(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock layer store: %w", err)
	}
	if err := filelock.Lock(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock layer store: %w", err)
	}
	return func() {
		// Closing alone would not do: a child process being started may still have a copy.
		filelock.Unlock(f)
		f.Close()
	}, nil
}

// tempFileLocked creates a locked file in the store's tmp. The lock distinguishes it from files of dead
// processes. The caller must hold the store's lock; otherwise GC could run before the file is locked.
func (d *folder) tempFileLocked() (*os.File, error) {
	f, err := os.OpenFile(d.path(tempDir, layer.NewID().String()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Try(f); err != nil {
		discard(f)
		return nil, err
	}
	return f, nil
}

// writeTemp writes a small file to tmp and makes it durable. The caller renames or discards it.
func (d *folder) writeTemp(b []byte) (*os.File, error) {
	if err := d.room(int64(len(b))); err != nil {
		return nil, err
	}
	unlock, err := d.lock()
	if err != nil {
		return nil, err
	}
	f, err := d.tempFileLocked()
	unlock()
	if err != nil {
		return nil, storeerr.NoSpace(err)
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
		return nil, storeerr.NoSpace(err)
	}
	return f, nil
}

// discard removes a temporary file.
func discard(f *os.File) {
	os.Remove(f.Name())
	f.Close()
}
