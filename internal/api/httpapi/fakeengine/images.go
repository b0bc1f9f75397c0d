package fakeengine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/api/routes/images"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Images is a store of names and digests only.
type Images struct {
	mu  sync.Mutex // guards all
	all map[string]images.Image
}

// NewImages returns a store with the named images.
func NewImages(names ...string) *Images {
	s := &Images{all: map[string]images.Image{}}
	for _, name := range names {
		s.all[name] = image(name, "sha256:"+digest([]byte(name)), 130<<20)
	}
	return s
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func image(name, digest string, size int64) images.Image {
	return images.Image{
		Name: name, Digest: digest, SizeBytes: size, CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Kernel: "6.12.95+deb12-cloud-amd64", MemoryMiB: 256, VCPUs: 1, Description: "fake",
	}
}

func (s *Images) ListImages(context.Context) ([]images.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []images.Image
	for _, i := range s.all {
		out = append(out, i)
	}
	return out, nil
}

func (s *Images) GetImage(_ context.Context, name string) (images.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.all[name]
	if !ok {
		return i, sandbox.Errorf(sandbox.ErrNotFound, sandbox.ReasonImageNotFound, "image %s not found", name)
	}
	return i, nil
}

func (s *Images) RemoveImage(ctx context.Context, name string) error {
	if _, err := s.GetImage(ctx, name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, name)
	return nil
}

// ImportImage accepts any bytes. Their digest is the image's digest.
func (s *Images) ImportImage(_ context.Context, name, want string, tar io.Reader) (images.Image, error) {
	h := sha256.New()
	n, err := io.Copy(h, tar)
	if err != nil {
		return images.Image{}, fmt.Errorf("import image %s: %w", name, err)
	}
	got := "sha256:" + hex.EncodeToString(h.Sum(nil))
	if want != "" && want != got {
		return images.Image{}, fmt.Errorf("import image %s: digest is %s, want %s: %w", name, got, want, sandbox.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[name] = image(name, got, n)
	return s.all[name], nil
}
