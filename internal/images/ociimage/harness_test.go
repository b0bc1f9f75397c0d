package ociimage

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	goerofs "github.com/erofs/go-erofs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// entries are tar entries in short form: "dir/", "file=content", "link->target", "hard=>target", and ".wh.name".
func tarOf(t testing.TB, entries ...string) []byte {
	t.Helper()
	var headers []any
	for _, e := range entries {
		headers = append(headers, header(e))
	}
	return tarOfHeaders(t, headers...)
}

type file struct {
	tar.Header
	data string
}

func header(e string) file {
	if name, target, ok := strings.Cut(e, "=>"); ok {
		return file{Header: tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}}
	}
	if name, target, ok := strings.Cut(e, "->"); ok {
		return file{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}}
	}
	if strings.HasSuffix(e, "/") {
		return file{Header: tar.Header{Typeflag: tar.TypeDir, Name: e, Mode: 0o750, Uid: 3}}
	}
	name, data, _ := strings.Cut(e, "=")
	return file{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data))}, data: data}
}

func tarOfHeaders(t testing.TB, all ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range all {
		h := f.(file)
		if err := w.WriteHeader(&h.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, h.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// imageOf makes an image with uncompressed layers.
func imageOf(t testing.TB, config v1.Config, layers ...[]byte) v1.Image {
	t.Helper()
	var all []v1.Layer
	for _, l := range layers {
		all = append(all, static.NewLayer(l, types.OCIUncompressedLayer))
	}
	return imageOfLayers(t, config, all...)
}

func imageOfLayers(t testing.TB, config v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "amd64", Config: config})
	if err == nil {
		img, err = mutate.AppendLayers(img, layers...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
}

// layoutOf writes an OCI layout.
func layoutOf(t testing.TB, img v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = p.AppendImage(img)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t testing.TB, name string, limits Limits) (*Image, error) {
	t.Helper()
	img, err := OpenFile(context.Background(), name, "", t.TempDir(), limits)
	if err == nil {
		t.Cleanup(func() { img.Close() })
	}
	return img, err
}

// root merges and writes an image, and opens the result with another implementation.
func root(t testing.TB, img *Image) (fs.FS, error) {
	t.Helper()
	r, err := img.Merge(context.Background(), func(float64) {})
	if err != nil {
		return nil, err
	}
	return written(t, r)
}

func written(t testing.TB, r *Root) (fs.FS, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "root.erofs")
	if err := r.Write(context.Background(), path, strings.Repeat("ab", 16), func(float64) {}); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return goerofs.Open(f)
}

// list describes a tree in the short form.
func list(t testing.TB, root fs.FS) string {
	t.Helper()
	var all []string
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == "." {
			return err
		}
		switch d.Type() {
		case fs.ModeDir:
			all = append(all, p+"/")
		case fs.ModeSymlink:
			to, err := fs.ReadLink(root, p)
			all = append(all, p+"->"+to)
			return err
		case 0:
			b, err := fs.ReadFile(root, p)
			all = append(all, p+"="+string(b))
			return err
		default:
			all = append(all, fmt.Sprintf("%s?%s", p, d.Type()))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(all)
	return strings.Join(all, " ")
}

// merged applies layers, and describes the result or the error.
func merged(t testing.TB, layers ...[]byte) (string, error) {
	t.Helper()
	img, err := open(t, layoutOf(t, imageOf(t, v1.Config{}, layers...)), Limits{})
	if err != nil {
		return "", err
	}
	r, err := root(t, img)
	if err != nil {
		return "", err
	}
	return list(t, r), nil
}

func wantInvalid(t testing.TB, err error, text string) {
	t.Helper()
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), text) {
		t.Errorf("error is %v, want ErrInvalid with %q", err, text)
	}
}
