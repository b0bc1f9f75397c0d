package registries

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	server "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/signature"
	"github.com/forkd/forkd/internal/store/snapshot"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tool returns the path of a program. Programs of scripts/registries.sh are in .cache.
func tool(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range []string{"usr/bin", "."} {
		path, err := filepath.Abs(filepath.Join("../../.cache/registries", dir, name))
		must(t, err)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is missing: make deps and scripts/registries.sh provide it", name)
	}
	return path
}

// run runs a program, and returns its output.
func run(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, name), args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "COSIGN_PASSWORD="+password, "NO_PROXY=127.0.0.1",
		"no_proxy=127.0.0.1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// registries are the servers that the tests use, by name.
var registries = map[string]func(t *testing.T) string{"docker-registry": debian, "go-containerregistry": library}

// debian starts Debian's docker-registry, and returns its address.
func debian(t *testing.T) string {
	t.Helper()
	program := tool(t, "docker-registry")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := l.Addr().String()
	must(t, l.Close())
	config := filepath.Join(t.TempDir(), "config.yml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, "version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: "+
		"%s}, delete: {enabled: true}}\nhttp: {addr: %q}\n", t.TempDir(), address), 0o600))
	cmd := exec.Command(program, "serve", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for range 200 {
		res, err := http.Get("http://" + address + "/v2/")
		if err == nil {
			res.Body.Close()
			return address
		}
		time.Sleep(50 * time.Millisecond) // elapses: the server has no other sign of readiness
	}
	t.Fatal("docker-registry does not answer")
	return ""
}

// library starts the registry of go-containerregistry, which lists referrers.
func library(t *testing.T) string {
	t.Helper()
	return through(t, nil)
}

// through starts the library's registry behind a handler, which reports whether it answered.
func through(t *testing.T, lie func(http.ResponseWriter, *http.Request) bool) string {
	t.Helper()
	real := server.New(server.Logger(log.New(io.Discard, "", 0)), server.WithReferrersSupport(true))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lie == nil || !lie(w, r) {
			real.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// host is one host's store and its cache of blobs.
type host struct {
	t         *testing.T
	layers    *store.Store
	snapshots *snapshot.Store
	cache     *ociimage.Cache
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	layers, err := store.Open(filepath.Join(dir, "layers"), store.Options{})
	must(t, err)
	snapshots, err := snapshot.OpenStore(filepath.Join(dir, "snapshots"), layers)
	must(t, err)
	cache, err := ociimage.OpenCache(filepath.Join(dir, "blobs"))
	must(t, err)
	t.Cleanup(func() { cache.Close() })
	return &host{t, layers, snapshots, cache}
}

const memoryBytes = 64 << 20

// make makes a snapshot with some memory.
func (h *host) make(tag string, seed uint64) {
	t := h.t
	t.Helper()
	d, err := h.snapshots.Create(tag)
	must(t, err)
	defer d.Discard()
	l, err := h.layers.Create(layer.Spec{ID: layer.ID{byte(seed)}, Kind: layer.Memory, Size: memoryBytes}, store.DraftOptions{})
	must(t, err)
	random := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, 600<<10)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	must(t, l.Data(1<<20, b))
	have, err := l.Commit()
	must(t, err)
	must(t, h.layers.Hash(t.Context(), have.ID, nil))
	d.Keep(have)
	for name, text := range map[string]string{snapshot.StateFile: "the state", snapshot.DiskFile(0): "a root disk"} {
		f, err := d.File(name)
		must(t, err)
		_, err = f.WriteString(text)
		must(t, err)
	}
	must(t, d.Commit(&snapshot.Manifest{
		CreatedUnixMS: 1700000000000, Image: &snapshot.Image{Name: "python", Digest: "sha256:ab"},
		Shape: vmspec.Shape{MemoryMiB: memoryBytes >> 20, VCPUs: 1, Disks: 1}, Cmdline: "console=ttyS0",
		Memory: snapshot.Chain{Own: 1, Layers: []layer.ID{have.ID}}, State: snapshot.State{File: snapshot.StateFile},
		Disks: []snapshot.Disk{{File: snapshot.DiskFile(0), ReadOnly: true}},
	}))
}

// layout returns a snapshot as an OCI layout in a tar.
func (h *host) layout(tag string) []byte {
	t := h.t
	t.Helper()
	files, err := h.snapshots.Open(tag)
	must(t, err)
	defer files.Close()
	var b bytes.Buffer
	must(t, (&hub.Export{Files: files, Layers: h.layers}).Write(t.Context(), &b))
	return b.Bytes()
}

func (h *host) repository(ref string) *ociimage.Repository {
	h.t.Helper()
	r, err := ociimage.OpenRepository(h.t.Context(), ociimage.Pull{Ref: ref, Cache: h.cache, Wait: time.Millisecond,
		Keychain: authn.NewMultiKeychain()})
	must(h.t, err)
	return r
}

func blob(d hub.Descriptor) v1.Descriptor {
	return v1.Descriptor{MediaType: types.MediaType(d.MediaType), Digest: v1.Hash{Algorithm: "sha256", Hex: d.Hex()}, Size: d.Size}
}

// push sends a snapshot as `forkd push` does, and returns its descriptor.
func (h *host) push(tag, ref string) signature.Descriptor {
	t := h.t
	t.Helper()
	up, err := h.repository(ref).Push(t.Context())
	must(t, err)
	raw, _, err := hub.ReadExport(bytes.NewReader(h.layout(tag)), func(d hub.Descriptor, r io.Reader) error {
		b, err := io.ReadAll(r)
		return errors.Join(err, up.Blob(blob(d), func() io.Reader { return bytes.NewReader(b) }))
	})
	must(t, err)
	must(t, up.Manifest(raw, hub.ManifestType))
	return signature.Describe(hub.ManifestType, raw)
}

// pull makes a snapshot of a registry as `forkd pull` and the daemon do. trust may be nil.
func (h *host) pull(ref, tag string, signatures []signature.Signature,
	trust func([]signature.Signature, string) error) error {
	t := h.t
	t.Helper()
	repo := h.repository(ref)
	raw, _, err := repo.Manifest(t.Context())
	if err != nil {
		return err
	}
	a, err := hub.ParseArtifact(raw)
	if err != nil {
		return err
	}
	var blobs []v1.Descriptor
	for _, d := range a.Blobs() {
		blobs = append(blobs, blob(d))
	}
	if err := repo.Fetch(t.Context(), blobs, func(int64, int64) {}); err != nil {
		return err
	}
	var stream bytes.Buffer
	out := &hub.Outgoing{Raw: raw, Artifact: a, Signatures: signatures,
		Open: func(d hub.Descriptor) (io.ReadCloser, error) { return repo.Open(blob(d)) }}
	must(t, out.Write(&stream, false))
	return h.receive(&stream, tag, trust)
}

func (h *host) receive(r io.Reader, tag string, trust func([]signature.Signature, string) error) error {
	in, err := hub.Open(r, trust)
	if err != nil {
		return err
	}
	state, err := in.State()
	if err != nil {
		return err
	}
	d, err := h.snapshots.Create(tag)
	if err != nil {
		return err
	}
	defer d.Discard()
	if err := in.Receive(h.t.Context(), d, state); err != nil {
		return err
	}
	return d.Commit(in.Manifest)
}

// same compares a snapshot with another host's.
func (h *host) same(tag string, other *host, otherTag string) {
	h.t.Helper()
	a, err := hub.OpenLayout(bytes.NewReader(h.layout(tag)))
	must(h.t, err)
	b, err := hub.OpenLayout(bytes.NewReader(other.layout(otherTag)))
	must(h.t, err)
	if fmt.Sprint(a.Artifact.Layers) != fmt.Sprint(b.Artifact.Layers) {
		h.t.Error("the snapshots differ")
	}
}
