package ociimage

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// refName is the annotation with an image's name in an OCI layout.
const refName = "org.opencontainers.image.ref.name"

// files are the files of an image in a folder or a tar.
type files interface {
	// open returns a regular file and its size. The error wraps fs.ErrNotExist if there is no such file.
	open(name string) (io.ReadCloser, int64, error)
	close() error
}

// OpenFile opens an OCI layout (a folder or a tar) or a file of `docker save`. ref chooses among several images, by
// name or digest; it may be empty. tmp is a folder for an unpacked copy, if the tar is compressed.
func OpenFile(ctx context.Context, name, ref, tmp string, limits Limits) (_ *Image, err error) {
	limits = limits.complete()
	f, err := openFiles(ctx, name, tmp, limits)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("read %s: %w", name, errors.Join(err, f.close()))
		}
	}()
	img, err := openLayout(ctx, f, ref, limits)
	if errors.Is(err, errNoLayout) {
		img, err = openSaved(f, ref, limits)
	}
	if err != nil {
		return nil, err
	}
	img.Source, img.close = filepath.Base(filepath.Clean(name)), f.close
	return img, nil
}

func openFiles(ctx context.Context, name, tmp string, limits Limits) (files, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		root, err := os.OpenRoot(name)
		return folder{root}, err
	}
	if !info.Mode().IsRegular() {
		return nil, invalid("it is neither a folder nor a regular file")
	}
	return openTar(ctx, name, tmp, limits)
}

// folder is a folder of files. Links cannot lead out of it.
type folder struct{ root *os.Root }

func (f folder) open(name string) (io.ReadCloser, int64, error) {
	file, err := f.root.Open(filepath.FromSlash(name))
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = invalid("%s is not a regular file", name)
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

func (f folder) close() error { return f.root.Close() }

// tarFile is a tar with the places of its files.
type tarFile struct {
	file  *os.File
	spans map[string]span
	links map[string]string // older versions of Docker save equal layers as links
}

type span struct{ offset, size int64 }

const maxTarFiles = 100_000

func openTar(ctx context.Context, name, tmp string, limits Limits) (_ *tarFile, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	f, err = unpackWhole(ctx, f, tmp, limits)
	if err != nil {
		return nil, err
	}
	t := &tarFile{file: f, spans: map[string]span{}, links: map[string]string{}}
	if err := t.index(ctx); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return t, nil
}

// index reads the headers of the tar. Later files replace earlier ones.
func (t *tarFile) index(ctx context.Context) error {
	r := tar.NewReader(t.file)
	for n := 0; ; n++ {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		h, err := r.Next()
		if errors.Is(err, io.EOF) && n > 0 {
			return nil
		}
		if err != nil {
			return invalid("not an OCI layout or a file of `docker save`: %w", err)
		}
		if n > maxTarFiles {
			return invalid("more than %d files", maxTarFiles)
		}
		at, err := t.file.Seek(0, io.SeekCurrent) // the tar reader seeks, and does not read ahead
		if err != nil {
			return err
		}
		t.add(h, at)
	}
}

func (t *tarFile) add(h *tar.Header, at int64) {
	name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	delete(t.spans, name)
	delete(t.links, name)
	switch h.Typeflag {
	case tar.TypeReg:
		for k := range h.PAXRecords {
			if strings.HasPrefix(k, "GNU.sparse.") {
				return
			}
		}
		t.spans[name] = span{at, h.Size}
	case tar.TypeSymlink:
		// #nosec G305 -- a key of this map, and never a path of the host
		t.links[name] = strings.TrimPrefix(path.Join("/", path.Dir(name), h.Linkname), "/")
	case tar.TypeLink:
		t.links[name] = strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")
	}
}

func (t *tarFile) open(name string) (io.ReadCloser, int64, error) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	for range maxLinks {
		if s, ok := t.spans[name]; ok {
			return io.NopCloser(io.NewSectionReader(t.file, s.offset, s.size)), s.size, nil
		}
		to, ok := t.links[name]
		if !ok {
			break
		}
		name = to
	}
	return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (t *tarFile) close() error { return t.file.Close() }

func readFile(f files, name string, limit int64) ([]byte, error) {
	r, size, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > limit {
		return nil, invalid("%s has %d bytes, more than %d", name, size, limit)
	}
	return io.ReadAll(io.LimitReader(r, limit))
}

var errNoLayout = errors.New("no OCI layout")

// openLayout opens an image of an OCI layout.
func openLayout(ctx context.Context, f files, ref string, limits Limits) (*Image, error) {
	raw, err := readFile(f, "index.json", maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoLayout
	}
	if err != nil {
		return nil, err
	}
	index, _, err := parseIndex(raw)
	if err != nil {
		return nil, fmt.Errorf("index.json: %w", err)
	}
	all := index.Manifests
	if ref != "" {
		if all = named(all, ref); len(all) == 0 {
			return nil, fmt.Errorf("image %q %w: it has %s", ref, ErrNotFound, strings.Join(refNames(index.Manifests), ", "))
		}
	}
	d, err := choose(all)
	if err != nil {
		return nil, err
	}
	return resolve(ctx, ociLayout{f}, d, limits)
}

func named(all []v1.Descriptor, ref string) []v1.Descriptor {
	var found []v1.Descriptor
	for _, d := range all {
		if d.Annotations[refName] == ref || d.Annotations["io.containerd.image.name"] == ref || d.Digest.String() == ref {
			found = append(found, d)
		}
	}
	return found
}

// ociLayout is an OCI layout: https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md
type ociLayout struct{ files files }

func (l ociLayout) manifest(_ context.Context, d v1.Descriptor, limit int64) ([]byte, error) {
	return readFile(l.files, blobPath(d), limit)
}

func (l ociLayout) blob(_ context.Context, d v1.Descriptor, limit int64) ([]byte, error) {
	return readFile(l.files, blobPath(d), limit)
}

func (l ociLayout) open(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	r, size, err := l.files.open(blobPath(d))
	if err == nil && size != d.Size {
		err = errors.Join(invalid("%s has %d bytes, not %d", d.Digest, size, d.Size), r.Close())
	}
	return r, err
}

func blobPath(d v1.Descriptor) string { return path.Join("blobs", d.Digest.Algorithm, d.Digest.Hex) }

// saved is an element of manifest.json in a file of `docker save`.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// openSaved opens an image of a file of `docker save`. Its layers have no digest of their own.
func openSaved(f files, ref string, limits Limits) (*Image, error) {
	raw, err := readFile(f, "manifest.json", maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, invalid("it has neither index.json (OCI layout) nor manifest.json (docker save)")
	}
	if err != nil {
		return nil, err
	}
	var all []saved
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, invalid("manifest.json: %w", err)
	}
	one, err := chooseSaved(all, ref)
	if err != nil {
		return nil, err
	}
	if len(one.Layers) > limits.Layers {
		return nil, invalid("%d layers, more than %d", len(one.Layers), limits.Layers)
	}
	rawConfig, err := readFile(f, one.Config, maxConfig)
	if err != nil {
		return nil, invalid("configuration: %w", err)
	}
	config, diffIDs, err := parseConfig(rawConfig, len(one.Layers))
	if err != nil {
		return nil, err
	}
	img := &Image{Config: config, limits: limits, Digest: digestOf(rawConfig)}
	for i, name := range one.Layers {
		img.layers = append(img.layers, layer{diffID: diffIDs[i], size: -1,
			open: func(context.Context) (io.ReadCloser, error) {
				r, _, err := f.open(name)
				return r, err
			}})
	}
	return img, nil
}

func chooseSaved(all []saved, ref string) (saved, error) {
	var names []string
	for _, s := range all {
		for _, tag := range append(s.RepoTags, s.Config) {
			if ref != "" && tag == ref {
				return s, nil
			}
		}
		names = append(names, s.RepoTags...)
	}
	switch {
	case ref != "":
		return saved{}, fmt.Errorf("image %q %w: it has %s", ref, ErrNotFound, strings.Join(names, ", "))
	case len(all) == 0:
		return saved{}, invalid("manifest.json names no image")
	case len(all) > 1:
		return saved{}, invalid("%d images; name one of them: %s", len(all), strings.Join(names, ", "))
	}
	return all[0], nil
}
