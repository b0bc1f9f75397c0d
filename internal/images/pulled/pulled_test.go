package pulled_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	goerofs "github.com/erofs/go-erofs"
	"github.com/google/go-containerregistry/pkg/name"
	server "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/images/pulled"
)

// killed has the folder and the reference of a child process that is killed while it makes an image.
const killed = "FORKD_TEST_PULLED"

func TestMain(m *testing.M) {
	if dir, ref, ok := strings.Cut(os.Getenv(killed), "|"); ok {
		if err := child(dir, ref); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
	}
	if dir, ref, ok := strings.Cut(os.Getenv(measured), "|"); ok {
		if err := measure(dir, ref); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child prints each report, and waits for a line of its input after it.
func child(dir, ref string) error {
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
	_, err = src.Make(context.Background(), func(step string, _ float64, _ string) {
		os.Stdout.WriteString(step + "\n")
		io.ReadFull(os.Stdin, make([]byte, 1))
	})
	os.Stdout.WriteString("made\n")
	io.ReadFull(os.Stdin, make([]byte, 1))
	return err
}

func config(dir string, donors *image.Store) pulled.Config {
	return pulled.Config{Dir: filepath.Join(dir, "pulls"), Donors: donors, Donor: "base", Limits: pulled.Limits}
}

// bench has a registry with the image team/app:1, and a folder with an image for its kernel.
type bench struct {
	t      *testing.T
	dir    string
	host   string
	donors *image.Store
	seen   func(*http.Request)
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, dir: t.TempDir(), seen: func(*http.Request) {}}
	real := server.New(server.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.seen(r)
		real.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	b.host = strings.TrimPrefix(s.URL, "http://")
	noise := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	layer := static.NewLayer(tarOf(t, map[string][]byte{"etc/of-image": []byte("x"), "noise": noise}), types.DockerUncompressedLayer)
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "amd64"})
	if err == nil {
		img, err = mutate.AppendLayers(img, layer)
	}
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(b.ref())
	if err == nil {
		err = remote.Write(ref, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	if b.donors, err = image.OpenStore(filepath.Join(b.dir, "donors")); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) ref() string { return b.host + "/team/app:1" }

func tarOf(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// donate adds the image whose kernel is used. Its files contain their names.
func (b *bench) donate() {
	b.t.Helper()
	m := image.Metadata{FormatVersion: image.FormatVersion, Name: "base", Suite: "bookworm", Packages: []string{},
		Kernel:   image.KernelInfo{Release: "6.12"},
		Defaults: image.Defaults{MemoryMiB: 128, VCPUs: 1, DiskMiB: 64, User: "user", Workdir: "/"}, Files: map[string]image.FileSum{}}
	for _, f := range []string{image.KernelFile, image.InitrdFile, image.RootFile, image.UpperFile} {
		sum := sha256.Sum256([]byte(f))
		m.Files[f] = image.FileSum{Size: int64(len(f)), SHA256: hex.EncodeToString(sum[:])}
	}
	meta, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []string{image.MetadataFile, image.KernelFile, image.InitrdFile, image.RootFile, image.UpperFile} {
		data := []byte(f)
		if f == image.MetadataFile {
			data = meta
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f, Mode: 0o644, Size: int64(len(data))}); err != nil {
			b.t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.donors.Import(b.t.Context(), &out); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) open(tune ...func(*pulled.Config)) *pulled.Store {
	b.t.Helper()
	c := config(b.dir, b.donors)
	for _, f := range tune {
		f(&c)
	}
	s, err := pulled.Open(c)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func quiet(string, float64, string) {}

// make makes the image, and closes it at the end of the test.
func (b *bench) make(s *pulled.Store) (string, error) {
	b.t.Helper()
	src, err := s.Resolve(b.t.Context(), pulled.Request{Ref: b.ref()})
	if err != nil {
		return "", err
	}
	made, err := src.Make(b.t.Context(), quiet)
	if err == nil {
		b.check(s, made)
	}
	return made, errors.Join(err, src.Close())
}

// check compares an image with its donor and with its layer.
func (b *bench) check(s *pulled.Store, made string) {
	b.t.Helper()
	img, err := s.Images().Get(made)
	if err == nil {
		err = img.Verify(b.t.Context())
	}
	if err != nil {
		b.t.Fatal(err)
	}
	for _, part := range []string{image.KernelFile, image.InitrdFile, image.UpperFile} {
		if got, err := os.ReadFile(img.Path(part)); err != nil || string(got) != part {
			b.t.Errorf("%s is %q, %v", part, got, err)
		}
	}
	f, err := os.Open(img.Path(image.RootFile))
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	root, err := goerofs.Open(f)
	if err != nil {
		b.t.Fatal(err)
	}
	if got, err := fs.ReadFile(root, "etc/of-image"); err != nil || string(got) != "x" {
		b.t.Errorf("the root has %q, %v", got, err)
	}
	if _, err := fs.Stat(root, "etc/forkd/image.json"); err != nil {
		b.t.Error(err)
	}
	if img.Container == nil || img.Container.Reference != b.ref() || img.Defaults.DiskMiB != 64 || img.Defaults.User != "root" {
		b.t.Errorf("metadata are %+v", img.Metadata)
	}
}

// empty checks that neither an image nor a layer is left.
func (b *bench) empty() {
	b.t.Helper()
	var left []string
	err := filepath.WalkDir(filepath.Join(b.dir, "pulls"), func(path string, d fs.DirEntry, err error) error {
		if path != filepath.Join(b.dir, "pulls") && path != filepath.Join(b.dir, "pulls", "images") {
			left = append(left, path)
		}
		return err
	})
	if err != nil || len(left) > 0 {
		b.t.Errorf("left: %q, %v", left, err)
	}
}

func TestAnImageHasTheDonorsKernelAndTheLayersRoot(t *testing.T) {
	b := newBench(t)
	s := b.open()
	if _, err := b.make(s); !errors.Is(err, image.ErrNotFound) || !strings.Contains(err.Error(), "forkd image build base") {
		t.Errorf("without an image with a kernel: %v", err)
	}
	b.empty()
	b.donate()
	first, err := b.make(s)
	if err != nil {
		t.Fatal(err)
	}
	b.empty()
	second, err := b.make(s)
	if err != nil || first == second {
		t.Errorf("%v; two images have the name %s", err, first)
	}
	if _, err := os.Stat(filepath.Join(b.donors.Dir(), "base", image.KernelFile)); err != nil {
		t.Error(err)
	}
	if _, err := s.Resolve(t.Context(), pulled.Request{Ref: b.host + "/team/none:1"}); !errors.Is(err, ociimage.ErrNotFound) {
		t.Errorf("no such image: %v", err)
	}
	if _, err := s.Resolve(t.Context(), pulled.Request{Ref: "!"}); !errors.Is(err, ociimage.ErrInvalid) {
		t.Errorf("no reference: %v", err)
	}
	b.empty()
}

// The space ends at each moment of the work. All files are removed, and a retry with space succeeds.
func TestTheSpaceEnds(t *testing.T) {
	b := newBench(t)
	b.donate()
	full := errors.New("the disk is full")
	failed := 0
	for calls := range int32(64) {
		var left atomic.Int32
		left.Store(calls)
		s := b.open(func(c *pulled.Config) {
			c.Room = func() error {
				if left.Add(-1) < 0 {
					return full
				}
				return nil
			}
		})
		_, err := b.make(s)
		b.empty()
		if err == nil {
			break
		}
		if !errors.Is(err, full) {
			t.Errorf("after %d looks: %v", calls, err)
		}
		failed++
	}
	if failed < 4 || failed > 60 {
		t.Errorf("%d attempts failed", failed)
	}
}

// A process is killed after each report of its progress. The next one lists no image, and succeeds.
func TestKilled(t *testing.T) {
	b := newBench(t)
	b.donate()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for reports := 1; ; reports++ {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), killed+"="+b.dir+"|"+b.ref())
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		last := ""
		for range reports {
			last = line(t, out)
			if last == "made" {
				break
			}
			in.Write([]byte("\n"))
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		steps = append(steps, last)
		s := b.open()
		if all, err := s.Images().List(); err != nil || len(all) > 0 {
			t.Errorf("after %d reports, the last of %s: %v, %v", reports, last, all, err)
		}
		b.empty()
		if _, err := b.make(s); err != nil {
			t.Errorf("after %d reports: %v", reports, err)
		}
		if last == "made" {
			break
		}
	}
	if text := strings.Join(steps, " "); !strings.Contains(text, pulled.StepLayers) || !strings.Contains(text, pulled.StepRoot) {
		t.Errorf("killed at %s", text)
	}
}

// line reads a line byte by byte.
func line(t *testing.T, r io.Reader) string {
	t.Helper()
	var text []byte
	for b := make([]byte, 1); ; text = append(text, b[0]) {
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatal(err)
		}
		if b[0] == '\n' {
			return string(text)
		}
	}
}

// A mirror sees no credential of the registry.
func TestCredentialsAreForTheirHost(t *testing.T) {
	b := newBench(t)
	b.donate()
	other := newBench(t)
	for _, at := range []*bench{b, other} {
		at.seen = func(r *http.Request) {
			if _, _, has := r.BasicAuth(); has && at == other {
				t.Errorf("the mirror got a credential: %s", r.URL)
			}
		}
	}
	s := b.open(func(c *pulled.Config) {
		c.Configure = func(p *ociimage.Pull) error {
			p.Mirrors = []string{"http://" + other.host}
			return nil
		}
	})
	src, err := s.Resolve(t.Context(), pulled.Request{Ref: b.ref(), Username: "me", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if _, err := src.Make(t.Context(), quiet); err != nil {
		t.Error(err)
	}
}
