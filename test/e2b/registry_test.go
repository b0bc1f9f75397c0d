package e2b

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	server "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/forkd/forkd/internal/api/e2bapi/build"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/images/ecr"
	"github.com/forkd/forkd/internal/images/ecr/ecrtest"
	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/images/pulled"
	"github.com/forkd/forkd/test/harness"
)

// logins are the credentials for the first part of a repository's name. Other repositories are open.
var logins = map[string][2]string{"private": {"me", "secret"}, "google": {"_json_key", `{"type":"service_account"}`},
	"amazon": {"AWS", ecrtest.Password}}

// amazon is the host of the programs' registry of ECR. Its images are those of registry.
const amazon = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"

// registry serves the images of the programs, and returns its port.
func registry(t *testing.T) string {
	t.Helper()
	real := server.New(server.Logger(log.New(io.Discard, "", 0)))
	var filled atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if filled.Load() && !admitted(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		real.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	tools := imageOf(t, "amd64", toolsLayer(t))
	other := tarOf(t, map[string]string{"f": "x"}, nil)
	for at, img := range map[string]v1.Image{
		"open/tools": tools, "private/tools": tools, "google/tools": tools, "amazon/tools": tools,
		"open/arm": imageOf(t, "arm64", other), "open/static": imageOf(t, "amd64", other),
	} {
		ref, err := name.ParseReference("127.0.0.1:" + port + "/" + at + ":1")
		if err == nil {
			err = remote.Write(ref, img)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	filled.Store(true)
	return port
}

// admitted reports whether a request may be answered. The first one of each client, without a credential, learns how
// to authenticate.
func admitted(r *http.Request) bool {
	user, password, has := r.BasicAuth()
	repository, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/")
	want, private := logins[repository]
	switch {
	case private:
		return [2]string{user, strings.ReplaceAll(password, " ", "")} == want
	case repository == "":
		return has
	}
	return true
}

func imageOf(t *testing.T, arch string, layer []byte) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: arch,
		Config: v1.Config{Env: []string{"PATH=/usr/bin:/bin", "OF_IMAGE=by the image"}}})
	if err == nil {
		img, err = mutate.AppendLayers(img, static.NewLayer(layer, types.DockerUncompressedLayer))
	}
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// toolsLayer has busybox, and this host's bash and tar with their libraries. Its only account is root.
func toolsLayer(t *testing.T) []byte {
	t.Helper()
	files := map[string]string{"of-image": "made for the test\n", "etc/passwd": "root:x:0:0::/root:/bin/bash\n",
		"etc/group": "root:x:0:\n"}
	read := func(from, to string) {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(to, "/")] = string(b)
	}
	output := func(name string, args ...string) []string {
		out, err := exec.Command(name, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	read(busybox, "/bin/busybox")
	for _, program := range []string{"/bin/bash", "/bin/tar"} {
		read(program, program)
		for _, word := range output("ldd", program) {
			if strings.HasPrefix(word, "/") && !strings.HasSuffix(word, ":") {
				read(word, word)
			}
		}
	}
	links := map[string]string{}
	for _, applet := range output(busybox, "--list") {
		if _, is := files["bin/"+applet]; !is {
			links["bin/"+applet] = "/bin/busybox"
		}
	}
	return tarOf(t, files, links)
}

func tarOf(t *testing.T, files, links map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, content string) {
		h.Mode, h.Size = 0o755, int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		add(tar.Header{Typeflag: tar.TypeReg, Name: path}, files[path])
	}
	for _, path := range slices.Sorted(maps.Keys(links)) {
		add(tar.Header{Typeflag: tar.TypeSymlink, Name: path, Linkname: links[path]}, "")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// pulls pulls images like the daemon. The engine of the tests has no store of images, so it gets the image base.
type pulls struct {
	t     *testing.T
	store *pulled.Store
	at    string // address of the registry
	ecr   ecr.Client
}

func (p pulls) Check(_ context.Context, r build.Reference) error {
	host := ociimage.Host(r.Ref)
	if host == "" {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "image %q: want HOST/REPOSITORY:TAG", r.Ref)
	}
	if r.AWS == nil {
		return nil
	}
	if err := ecr.Keys(*r.AWS).Check(host); err != nil {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "%w", err)
	}
	return nil
}

func (p pulls) Here(context.Context, string) (string, bool) { return "", false }

func (p pulls) Resolve(ctx context.Context, r build.Reference) (build.Pulled, error) {
	if r.AWS != nil {
		l, err := p.ecr.Login(ctx, ociimage.Host(r.Ref), ecr.Keys(*r.AWS))
		if err != nil {
			return nil, err
		}
		r.Username, r.Password = l.Username, l.Password
	}
	ref := strings.Replace(r.Ref, amazon, p.at, 1)
	src, err := p.store.Resolve(ctx, pulled.Request{Ref: ref, Username: r.Username, Password: r.Password})
	if err != nil {
		return nil, err
	}
	return pulledImage{src, p}, nil
}

type pulledImage struct {
	*pulled.Source
	pulls pulls
}

func (p pulledImage) Make(ctx context.Context, say func(string)) (string, error) {
	made, err := p.Source.Make(ctx, func(step string, _ float64, detail string) { say(step + ": " + detail) })
	if err != nil {
		return "", err
	}
	img, err := p.pulls.store.Images().Get(made)
	if err == nil {
		err = img.Verify(ctx)
	}
	if err != nil || img.Defaults.Env["OF_IMAGE"] != "by the image" {
		p.pulls.t.Errorf("image %s: %v, %+v", made, err, img.Metadata)
	}
	return "base", nil
}

// donors is a store with one image.
func donors(t *testing.T) *image.Store {
	t.Helper()
	store, err := image.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := image.Metadata{FormatVersion: image.FormatVersion, Name: "base", Suite: "bookworm", Packages: []string{},
		Defaults: image.Defaults{MemoryMiB: 128, VCPUs: 1, User: "user", Workdir: "/"}, Files: map[string]image.FileSum{}}
	parts := []string{image.KernelFile, image.InitrdFile, image.RootFile}
	for _, f := range parts {
		sum := sha256.Sum256([]byte(f))
		m.Files[f] = image.FileSum{Size: int64(len(f)), SHA256: hex.EncodeToString(sum[:])}
	}
	meta, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range append([]string{image.MetadataFile}, parts...) {
		content := []byte(f)
		if f == image.MetadataFile {
			content = meta
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f, Mode: 0o644, Size: int64(len(content))}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Import(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return store
}

// The machine's daemon pulls from a registry on this host.
func registries(t *testing.T, m *harness.Machine) {
	run(t, m.E2B["E2B_API_URL"], env(m, "E2B_TEST_REGISTRY=10.0.2.2:"+registry(t)),
		filepath.Join(cache(t, "python-"+newestPython), "bin", "python"), filepath.Join("testdata", "templateregistry.py"))
}

// E2B's packages build templates from the images of a registry. Afterwards no layer and no image is left.
func TestImagesOfRegistries(t *testing.T) {
	if os.Getuid() != 0 { // steps run as root, and the guest is this host
		return
	}
	python := filepath.Join(cache(t, "python-"+newestPython), "bin", "python")
	dir := t.TempDir()
	store, err := pulled.Open(pulled.Config{Dir: dir, Donors: donors(t), Donor: "base", Limits: pulled.Limits})
	if err != nil {
		t.Fatal(err)
	}
	stub, at := ecrtest.Start(t), "127.0.0.1:"+registry(t)
	var logged bytes.Buffer
	t.Cleanup(func() { // after the end of the builder
		for _, secret := range []string{ecrtest.KeyID, ecrtest.DeniedID, ecrtest.Secret, ecrtest.Password} {
			if strings.Contains(logged.String(), secret) {
				t.Errorf("the daemon's log has %s", secret)
			}
		}
	})
	s := httptest.NewServer(handlerWith(t, func(c *build.Config) {
		c.Log = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Registry = pulls{t, store, at, ecr.Client{Transport: stub.Transport}}
		c.Account, c.Prepare = build.Context{User: "root", Workdir: "/"}, "true" // the host gets no account
	}, "base"))
	t.Cleanup(s.Close)
	env := []string{"E2B_TEST_REGISTRY=" + at, "E2B_TEST_ECR=" + amazon, "E2B_TEST_ECR_KEY=" + ecrtest.KeyID,
		"E2B_TEST_ECR_DENIED=" + ecrtest.DeniedID, "E2B_TEST_ECR_SECRET=" + ecrtest.Secret,
		"E2B_TEST_ECR_PASSWORD=" + ecrtest.Password}
	run(t, s.URL, env, python, filepath.Join("testdata", "templateregistry.py"))
	if hasNPM(t) {
		run(t, s.URL, env, "node", module(t, newestNode, "templateregistry.mjs"))
	}
	if asked, wrong := stub.Asked(); len(asked) < 4 || len(wrong) > 0 {
		t.Errorf("%d requests to AWS, wrong: %v", len(asked), wrong)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the store: %v, %v", left, err)
	}
}
