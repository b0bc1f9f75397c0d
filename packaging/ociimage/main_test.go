package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/forkd/forkd/internal/images/ociimage"
)

func fill(t *testing.T, mode os.FileMode) spec {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"bin/forkd": "program", "recipes/base/recipe.yaml": "x: y", "LICENSE": "L",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	return spec{
		version: "0.1.0", revision: "abc", date: time.Unix(1700000000, 0).UTC(),
		programs: filepath.Join(dir, "bin"), recipes: filepath.Join(dir, "recipes"),
		docs: []string{filepath.Join(dir, "LICENSE")},
	}
}

func TestImage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.tar")
	if err := fill(t, 0o600).write(file); err != nil {
		t.Fatal(err)
	}
	if _, err := ociimage.OpenFile(context.Background(), file, "", t.TempDir(), ociimage.Limits{}); err != nil {
		t.Errorf("forkd image import would refuse it: %v", err)
	}

	dir := unpack(t, file)
	p, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	idx, err := p.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	m, err := idx.IndexManifest()
	if err != nil || len(m.Manifests) != 1 {
		t.Fatalf("index: %v, %v", m, err)
	}
	img, err := idx.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := files(t, mutate.Extract(img)), map[string]string{
		"usr/lib/forkd/forkd": "program", "usr/share/forkd/recipes/base/recipe.yaml": "x: y",
		"usr/share/doc/forkd/LICENSE": "L",
		"etc/group":                   "root:x:0:\n", "etc/passwd": "root:x:0:0:root:/root:/nonexistent\n",
	}; !maps.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if e := c.Config.Entrypoint; len(e) != 2 || e[0] != "/usr/lib/forkd/forkd" || e[1] != "serve" {
		t.Errorf("entrypoint %v", e)
	}
	const label = "org.opencontainers.image."
	if l := c.Config.Labels; l[label+"version"] != "0.1.0" || l[label+"revision"] != "abc" {
		t.Errorf("labels %v", l)
	}
}

func TestTheSameInputGivesTheSameBytes(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.tar"), filepath.Join(dir, "two.tar")
	if err := errors.Join(fill(t, 0o600).write(one), fill(t, 0o640).write(two)); err != nil {
		t.Fatal(err)
	}
	a, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(two)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("the images differ")
	}
}

func unpack(t *testing.T, file string) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range files(t, f) {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// files returns the regular files of a tar.
func files(t *testing.T, in io.ReadCloser) map[string]string {
	t.Helper()
	defer in.Close()
	all := map[string]string{}
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			all[h.Name] = string(data)
		}
	}
}
