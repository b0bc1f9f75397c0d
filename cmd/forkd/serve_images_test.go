//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/images/image"
)

// imageStream is an export of an image. Its files contain their own names.
func imageStream(t testing.TB, name string) []byte {
	t.Helper()
	return imageStreamOf(t, name, func(*image.Metadata) {})
}

func imageStreamOf(t testing.TB, name string, change func(*image.Metadata)) []byte {
	t.Helper()
	m := image.Metadata{
		FormatVersion: image.FormatVersion, Name: name, Suite: "bookworm",
		Defaults: image.Defaults{MemoryMiB: 128, VCPUs: 1, User: "user", Workdir: "/"}, Files: map[string]image.FileSum{},
	}
	files := []string{image.KernelFile, image.InitrdFile, image.RootFile}
	for _, f := range files {
		sum := sha256.Sum256([]byte(f))
		m.Files[f] = image.FileSum{Size: int64(len(f)), SHA256: hex.EncodeToString(sum[:])}
	}
	change(&m)
	meta, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(name string, content []byte) {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	add(image.MetadataFile, meta)
	for _, f := range files {
		add(f, []byte(f))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestImageStoreOverTheAPI(t *testing.T) {
	store, err := image.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, stream := imageStore{store: store}, imageStream(t, "mine")
	ctx := t.Context()
	if _, err := s.ImportImage(ctx, "other", "", bytes.NewReader(stream)); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("import under another name: %v", err)
	}
	wrong := "sha256:" + strings.Repeat("0", 64)
	if _, err := s.ImportImage(ctx, "mine", wrong, bytes.NewReader(stream)); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("import with another digest: %v", err)
	}
	if _, err := s.ImportImage(ctx, "mine", "", bytes.NewReader(stream[:len(stream)-1800])); err == nil {
		t.Error("import of a stream cut short succeeded")
	}
	if list, err := s.ListImages(ctx); err != nil || len(list) != 0 {
		t.Fatalf("failed imports left %v, %v", list, err)
	}
	img, err := s.ImportImage(ctx, "mine", "", bytes.NewReader(stream))
	if err != nil || img.Name != "mine" || img.MemoryMiB != 128 {
		t.Fatalf("import: %+v, %v", img, err)
	}
	if again, err := s.ImportImage(ctx, "mine", img.Digest, bytes.NewReader(stream)); err != nil || again.Digest != img.Digest {
		t.Errorf("import with its own digest: %+v, %v", again, err)
	}
	if got, err := s.GetImage(ctx, "mine"); err != nil || got.Digest != img.Digest {
		t.Errorf("get: %+v, %v", got, err)
	}
	if err := s.RemoveImage(ctx, "mine"); err != nil {
		t.Error(err)
	}
	if _, err := s.GetImage(ctx, "mine"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("get after remove: %v", err)
	}
	if _, err := s.GetImage(ctx, "../x"); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("get of a bad name: %v", err)
	}
}

// FuzzPeekMetadata reads arbitrary uploads. The stream comes out unchanged or is refused.
func FuzzPeekMetadata(f *testing.F) {
	good := imageStream(f, "mine")
	f.Add(good)
	f.Add(good[:700])
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0}, 2048))
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, _, err := peekMetadata(bytes.NewReader(stream), "mine")
		if err != nil {
			return
		}
		if b, err := io.ReadAll(whole); err != nil || !bytes.Equal(b, stream) {
			t.Errorf("the stream came out changed: %v", err)
		}
	})
}

func TestAnImportLeavesTheReserveOfTheDisk(t *testing.T) {
	dir := t.TempDir()
	store, err := image.OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	full := sandbox.Errorf(sandbox.ErrNoSpace, sandbox.ReasonStoreFull, "no space left in the store")
	s := imageStore{store, func() error { return full }}
	if _, err := s.ImportImage(t.Context(), "mine", "", bytes.NewReader(imageStream(t, "mine"))); !errors.Is(err, full) ||
		errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if list, err := s.ListImages(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("it left %v, %v", list, err)
	}
	r := &roomy{r: bytes.NewReader(make([]byte, 3*looksForRoom)), room: func() func() error {
		looks := 0
		return func() error {
			if looks++; looks > 2 {
				return full
			}
			return nil
		}
	}()}
	if n, err := io.Copy(io.Discard, r); n != 2*looksForRoom || !errors.Is(err, sandbox.ErrNoSpace) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if err := imageRoom(dir, 0)(); err != nil {
		t.Error(err)
	}
	if err := imageRoom(dir, 1<<60)(); !errors.Is(err, sandbox.ErrNoSpace) {
		t.Errorf("got %v", err)
	}
}
