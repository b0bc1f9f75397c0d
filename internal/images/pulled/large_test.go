package pulled_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goerofs "github.com/erofs/go-erofs"
	"github.com/google/go-containerregistry/pkg/name"
	server "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/images/pulled"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// fileLayer is a layer in a file.
type fileLayer struct {
	path         string
	digest, diff v1.Hash
	size         int64
	kind         types.MediaType
}

func (l fileLayer) Digest() (v1.Hash, error)             { return l.digest, nil }
func (l fileLayer) DiffID() (v1.Hash, error)             { return l.diff, nil }
func (l fileLayer) Compressed() (io.ReadCloser, error)   { return os.Open(l.path) }
func (l fileLayer) Uncompressed() (io.ReadCloser, error) { return nil, errors.ErrUnsupported }
func (l fileLayer) Size() (int64, error)                 { return l.size, nil }
func (l fileLayer) MediaType() (types.MediaType, error)  { return l.kind, nil }

// layerOf makes a layer with files of size bytes, in a folder with its number. If packed is set, the content is zeros in
// a compressed layer, otherwise noise.
func layerOf(t *testing.T, dir string, number, files int, size int64, packed bool) fileLayer {
	t.Helper()
	l := fileLayer{path: filepath.Join(dir, fmt.Sprint(number)), kind: types.DockerUncompressedLayer}
	f, err := os.Create(l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	whole, inner := sha256.New(), sha256.New()
	outer := io.MultiWriter(f, whole)
	var content io.Reader = rand.NewChaCha8([32]byte{byte(number)})
	var closers []io.Closer
	if packed {
		z, err := gzip.NewWriterLevel(outer, gzip.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		outer, content, l.kind, closers = z, zeros{}, types.DockerLayer, []io.Closer{z}
	}
	w := tar.NewWriter(io.MultiWriter(outer, inner))
	for i := range files {
		h := tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("data/%d/%d", number, i), Mode: 0o644, Size: size}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(w, content, size); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range append([]io.Closer{w}, closers...) {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	hash := func(sum []byte) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum)} }
	l.size, l.digest, l.diff = st.Size(), hash(whole.Sum(nil)), hash(inner.Sum(nil))
	return l
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// mostMemory is the resident memory that a process may need for any one image.
const mostMemory = 512 << 20

// A process makes an image of 2.5 GiB: noise in large files and in many small ones, and zeros. Its memory is bounded.
func TestALargeImage(t *testing.T) {
	kvmtest.Soak(t) // writes 8 GiB; short forms: the other tests of this package
	b := newBench(t)
	b.donate()
	blobs := t.TempDir()
	real := server.New(server.Logger(log.New(io.Discard, "", 0)), server.WithBlobHandler(server.NewDiskBlobHandler(blobs)))
	s := httptest.NewServer(real)
	defer s.Close()
	dir := t.TempDir()
	var layers []v1.Layer
	var size int64
	for i, of := range []struct {
		files  int
		size   int64
		packed bool
	}{{1, 768 << 20, false}, {3, 256 << 20, false}, {20_000, 24 << 10, false}, {1, 512 << 20, true}} {
		layers = append(layers, layerOf(t, dir, i, of.files, of.size, of.packed))
		size += int64(of.files) * of.size
	}
	if size < 2<<30 {
		t.Fatalf("the image has %d bytes", size)
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "amd64"})
	if err == nil {
		img, err = mutate.AppendLayers(img, layers...)
	}
	if err != nil {
		t.Fatal(err)
	}
	at := strings.TrimPrefix(s.URL, "http://") + "/team/large:1"
	ref, err := name.ParseReference(at)
	if err == nil {
		err = remote.Write(ref, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	made, peak := makeMeasured(t, b.dir, at)
	t.Logf("an image of %d MiB took %s and %d MiB of memory", size>>20, time.Since(start).Round(time.Second), peak>>20)
	if peak > mostMemory {
		t.Errorf("the process needed %d MiB, want at most %d", peak>>20, int64(mostMemory)>>20)
	}
	f, err := os.Open(filepath.Join(b.dir, "pulls", "images", made, image.RootFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	root, err := goerofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int64{"data/0/0": 768 << 20, "data/1/2": 256 << 20, "data/2/19999": 24 << 10, "data/3/0": 512 << 20} {
		if st, err := fs.Stat(root, path); err != nil || st.Size() != want {
			t.Errorf("%s: %v, %v", path, st, err)
		}
	}
	sum := sha256.New()
	if in, err := root.Open("data/1/0"); err != nil {
		t.Error(err)
	} else if _, err := io.Copy(sum, in); err != nil {
		t.Error(err)
	}
	want := sha256.New()
	if _, err := io.CopyN(want, rand.NewChaCha8([32]byte{1}), 256<<20); err != nil {
		t.Fatal(err)
	}
	if string(sum.Sum(nil)) != string(want.Sum(nil)) {
		t.Error("a file has other content")
	}
}

// makeMeasured makes an image in a process of its own. It returns the image's name and the most memory of the process.
func makeMeasured(t *testing.T, dir, ref string) (made string, peak int64) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), measured+"="+dir+"|"+ref)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(out), &made, &peak); err != nil {
		t.Fatalf("it said %q: %v", out, err)
	}
	return made, peak
}

// measured has the folder and the reference of a process that tells its memory.
const measured = "FORKD_TEST_PULLED_MEASURED"

// measure makes an image, and prints its name and the most resident memory.
func measure(dir, ref string) error {
	donors, err := image.OpenStore(filepath.Join(dir, "donors"))
	if err != nil {
		return err
	}
	s, err := pulled.Open(config(dir, donors))
	if err != nil {
		return err
	}
	src, err := s.Resolve(context.Background(), pulled.Request{Ref: ref})
	if err != nil {
		return err
	}
	made, err := src.Make(context.Background(), quiet)
	if err != nil {
		return err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var kib int64
	if _, err := fmt.Sscan(after, &kib); err != nil {
		return err
	}
	fmt.Println(made, kib<<10)
	return nil
}
