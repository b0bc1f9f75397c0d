package image

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
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/leaf/ctxio"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Store is a directory of images, one subdirectory each. Several processes may use it concurrently: images are
// added, replaced and removed by renaming their directory.
type Store struct {
	dir string
}

// Image is one image of a store. Its files are read-only.
type Image struct {
	Metadata
	// Dir is the directory of the image's files.
	Dir string
	// Created is the time when this copy was added to the store.
	Created time.Time
}

// Path returns the path of one of the image's files.
func (i Image) Path(file string) string { return filepath.Join(i.Dir, file) }

// Size returns the total size of the image's files, in bytes.
func (i Image) Size() int64 {
	var n int64
	for _, f := range i.Files {
		n += f.Size
	}
	return n
}

// OpenStore opens a store. It creates the directory if needed, and removes the remains of interrupted operations.
func OpenStore(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	if err := sweep(dir); err != nil {
		return nil, fmt.Errorf("open image store %s: %w", dir, err)
	}
	return &Store{dir: dir}, nil
}

// Dir returns the store's directory.
func (s *Store) Dir() string { return s.dir }

// List returns all complete images sorted by name. Damaged images are skipped and joined in the error; the list
// is valid even then.
func (s *Store) List() ([]Image, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var images []Image
	var bad []error
	for _, e := range entries {
		if !e.IsDir() || !nameRE.MatchString(e.Name()) {
			continue
		}
		img, err := s.Get(e.Name())
		switch {
		case errors.Is(err, ErrNotFound): // removed since ReadDir
		case err != nil:
			bad = append(bad, err)
		default:
			images = append(images, img)
		}
	}
	slices.SortFunc(images, func(a, b Image) int { return strings.Compare(a.Name, b.Name) })
	return images, errors.Join(bad...)
}

// Get returns an image after checking that its files exist with the right size. Verify checks their content.
func (s *Store) Get(name string) (Image, error) {
	if err := CheckName(name); err != nil {
		return Image{}, err
	}
	img, err := openWhole(filepath.Join(s.dir, name))
	if err == nil && img.Name != name {
		err = fmt.Errorf("%w: its metadata says it is %s", ErrDamaged, img.Name)
	}
	switch {
	case errors.Is(err, ErrNotFound):
		return Image{}, fmt.Errorf("image %s %w", name, ErrNotFound)
	case err != nil:
		return Image{}, fmt.Errorf("open image %s: %w", name, err)
	}
	return img, nil
}

// openWhole opens an image's directory, which another process may replace at any time. It never returns a mix of
// two images.
func openWhole(dir string) (Image, error) {
	for {
		img, whole, err := openOnce(dir)
		if whole {
			return img, err
		}
	}
}

// openOnce also reports whether the directory stayed the same.
func openOnce(dir string) (img Image, whole bool, err error) {
	folder, err := os.Open(dir) // kept open; otherwise its inode could be reused by the replacement
	if errors.Is(err, fs.ErrNotExist) {
		return Image{}, true, ErrNotFound
	}
	if err != nil {
		return Image{}, true, err
	}
	defer folder.Close()
	before, err := folder.Stat()
	if err != nil {
		return Image{}, true, err
	}
	img, err = open(dir)
	img.Created = before.ModTime()
	after, gone := os.Stat(dir)
	return img, gone == nil && os.SameFile(before, after), err
}

// OpenDir opens an image's directory outside of a store.
func OpenDir(dir string) (Image, error) {
	img, err := open(dir)
	if err != nil {
		return Image{}, fmt.Errorf("open image %s: %w", dir, err)
	}
	return img, nil
}

func open(dir string) (Image, error) {
	f, err := os.Open(filepath.Join(dir, MetadataFile))
	if err != nil {
		return Image{}, missingFile(err)
	}
	defer f.Close()
	b, err := readCapped(f, maxMetadata)
	if err != nil {
		return Image{}, fmt.Errorf("%w: %s: %w", ErrDamaged, MetadataFile, err)
	}
	m, err := parseMetadata(b)
	if err != nil {
		return Image{}, err
	}
	img := Image{Metadata: m, Dir: dir}
	for _, name := range m.dataFiles() {
		info, err := os.Stat(img.Path(name))
		if err != nil {
			return Image{}, missingFile(err)
		}
		if want := m.Files[name].Size; info.Size() != want || !info.Mode().IsRegular() {
			return Image{}, fmt.Errorf("%w: %s has %d bytes, not %d: remove the image and build it again",
				ErrDamaged, name, info.Size(), want)
		}
	}
	return img, nil
}

// missingFile turns a missing file's error into ErrDamaged.
func missingFile(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// Has reports whether the store has exactly this image (Metadata.ID) under its name.
func (s *Store) Has(name, id string) bool {
	img, err := s.Get(name)
	if err != nil {
		return false
	}
	have, err := img.ID()
	return err == nil && have == id
}

// Verify reads all files of an image and compares them with their digests.
func (s *Store) Verify(ctx context.Context, name string) error {
	img, err := s.Get(name)
	if err != nil {
		return err
	}
	return img.Verify(ctx)
}

// Verify reads all files and compares them with their digests.
func (i Image) Verify(ctx context.Context) error {
	for _, name := range i.dataFiles() {
		got, err := sumFile(ctx, i.Path(name))
		if err != nil {
			return fmt.Errorf("verify image %s: %w", i.Name, err)
		}
		if got != i.Files[name] {
			return fmt.Errorf("verify image %s: %w: %s is not what was built: remove the image and build it again",
				i.Name, ErrDamaged, name)
		}
	}
	return nil
}

// Remove deletes an image. VMs that have its files open can still use them.
func (s *Store) Remove(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	// Rename first, so that a half-deleted image is never found under its name.
	tmp, err := makeTemp(s.dir)
	if err != nil {
		return fmt.Errorf("remove image %s: %w", name, err)
	}
	defer tmp.Remove()
	err = os.Rename(filepath.Join(s.dir, name), filepath.Join(tmp.Path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("image %s %w", name, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("remove image %s: %w", name, err)
	}
	return durable.SyncDir(s.dir)
}

// sumFile reads a whole file. It stops when ctx ends.
func sumFile(ctx context.Context, path string) (FileSum, error) {
	f, err := os.Open(path)
	if err != nil {
		return FileSum{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, ctxio.Reader(ctx, f))
	if err != nil {
		return FileSum{}, fmt.Errorf("read %s: %w", path, err)
	}
	return FileSum{Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}
