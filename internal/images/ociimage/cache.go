package ociimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/forkd/forkd/internal/leaf/ctxio"
	"github.com/forkd/forkd/internal/sys/durable"
	"github.com/forkd/forkd/internal/sys/filelock"
)

// Cache is a folder of downloaded blobs: sha256/HEX has complete ones, and partial/HEX the beginnings of others.
// Several processes may use it. A blob gets its name after its digest was compared, so a killed process leaves
// partial blobs only, and the next download continues them.
type Cache struct {
	dir  string
	lock *os.File
}

const (
	blobAge    = 14 * 24 * time.Hour // since its last use
	partialAge = 3 * 24 * time.Hour
)

// OpenCache opens a cache, and removes blobs that were not used for two weeks, unless another process uses the
// cache. Close releases it.
func OpenCache(dir string) (_ *Cache, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("open cache of layers: %w", err)
		}
	}()
	c := &Cache{dir: dir}
	for _, sub := range []string{c.whole(), c.partial()} {
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return nil, err
		}
	}
	if c.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return nil, err
	}
	if filelock.Try(c.lock) == nil {
		err = errors.Join(collect(c.whole(), blobAge), collect(c.partial(), partialAge))
	}
	if err = errors.Join(err, filelock.Share(c.lock)); err != nil {
		return nil, errors.Join(err, c.lock.Close())
	}
	return c, nil
}

// Close lets other processes collect blobs.
func (c *Cache) Close() error { return c.lock.Close() }

// Temp returns the folder for files that are removed at once.
func (c *Cache) Temp() string { return c.dir }

func (c *Cache) whole() string            { return filepath.Join(c.dir, "sha256") }
func (c *Cache) partial() string          { return filepath.Join(c.dir, "partial") }
func (c *Cache) path(d v1.Hash) string    { return filepath.Join(c.whole(), d.Hex) }
func (c *Cache) beginOf(d v1.Hash) string { return filepath.Join(c.partial(), d.Hex) }

// collect removes old files.
func collect(dir string, age time.Duration) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < age {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// has reports whether the cache has a blob, and notes its use.
func (c *Cache) has(d v1.Descriptor) bool {
	info, err := os.Stat(c.path(d.Digest))
	if err != nil || info.Size() != d.Size {
		return false
	}
	_ = os.Chtimes(c.path(d.Digest), time.Time{}, time.Now()) // another user's blob is collected earlier
	return true
}

// begin opens the partial file of a blob, when no other process has it.
func (c *Cache) begin(ctx context.Context, d v1.Descriptor) (*os.File, error) {
	f, err := os.OpenFile(c.beginOf(d.Digest), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := filelock.Wait(ctx, f, nil); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// commit names a complete partial file. It removes a file with other content, and returns ErrInvalid.
func (c *Cache) commit(ctx context.Context, d v1.Descriptor, f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(h, ctxio.Reader(ctx, f))
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); n != d.Size || got != d.Digest.Hex {
		err := invalid("the registry sent %d bytes with the digest sha256:%s for %s", n, got, d.Digest)
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), c.path(d.Digest)); err != nil {
		return err
	}
	return durable.SyncDir(c.whole())
}
