// Package containers makes images of unusual container images, and runs them over real VMs with the command line:
// many layers, musl, no shell, an init as the program, systemd. It owns the making of these images. Servers of container
// images are in test/recipes, because they take longer.
package containers

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/forkd/forkd/test/harness"
)

// layers is the number of layers of the image.
const layers = 100

const image = "test-musl"

// Suite runs an image of many layers that has musl and one program, and no shell. The last form of the image has a
// stop signal and a health check.
func Suite(t *testing.T, m *harness.Machine) {
	forkd := func(args ...string) (string, error) {
		all := append([]string{"--url", m.URL, "--token", m.Token}, args...)
		out, err := exec.CommandContext(t.Context(), filepath.Join("..", "..", "bin", "forkd"), all...).CombinedOutput()
		return string(out), err
	}
	clean := func() {
		out, _ := forkd("-q", "snapshot", "ls")
		for tag := range strings.FieldsSeq(out) {
			if strings.Contains(tag, image) {
				_, _ = forkd("snapshot", "rm", "--cascade", tag)
			}
		}
		_, _ = forkd("image", "rm", image)
	}
	clean()
	t.Cleanup(clean)
	m.Forkd(t, "image", "import", "--name", image, muslImage(t, v1.Config{Entrypoint: []string{"/program"}}))
	for _, row := range []struct {
		args []string
		want string
		fail bool
	}{
		{nil, `args: []`, false},
		{[]string{"--", "/program", "a b"}, `args: ["a b"]`, false},
		{[]string{"--", "/program", "fail"}, `args: ["fail"]`, true},
	} {
		out, err := forkd(append([]string{"run", image}, row.args...)...)
		want := fmt.Sprintf("loaded by musl: true; parts: %d; last: %d; shell: false; %s; env: by the image\n", layers-2,
			layers-3, row.want)
		if !strings.Contains(out, want) || (err != nil) != row.fail {
			t.Errorf("%q: %v, %s, want %s", row.args, err, out, want)
		}
	}
	if out, err := forkd("run", image, "--", "/bin/sh", "-c", "true"); err == nil || !strings.Contains(out, "/bin/sh") {
		t.Errorf("a shell that is not there: %v, %s", err, out)
	}
	// Any program may have the name of an init.
	inits := v1.Config{Entrypoint: []string{"/sbin/init"}, Cmd: []string{"pid"}}
	m.Forkd(t, "image", "import", "--name", image, muslImage(t, inits))
	if out, err := forkd("run", image); err != nil || !strings.HasSuffix(out, "process 1\n") {
		t.Errorf("an init: %v, %s", err, out)
	}
	out, code := runAndStop(t, m, "--entrypoint", "/sbin/init", image, "serve")
	if out != "ends by terminated\n" || code != 42 {
		t.Errorf("an init that is stopped: %q, exit code %d", out, code)
	}
	server := v1.Config{Entrypoint: []string{"/program"}, Cmd: []string{"serve"}, StopSignal: "SIGUSR1",
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/program", "check"},
			Interval: time.Second, Timeout: 5 * time.Second, Retries: 2}}
	m.Forkd(t, "image", "import", "--name", image, muslImage(t, server))
	t.Run("stop signal", func(t *testing.T) { stopSignals(t, m) })
	t.Run("health check", func(t *testing.T) { healthChecks(t, m) })
	t.Run("systemd", func(t *testing.T) { systemd(t, m) })
}

// muslImage writes an image as `docker save` does. Its first layer has musl's loader, its last one the program; those
// between have a part each, and replace the same file.
func muslImage(t *testing.T, config v1.Config) string {
	t.Helper()
	dir := t.TempDir()
	all := [][]byte{tarOf(t, map[string][]byte{"lib/ld-musl-x86_64.so.1": loader(t, dir)})}
	for i := range layers - 2 {
		number := fmt.Append(nil, i)
		all = append(all, tarOf(t, map[string][]byte{"last": number, "parts/" + string(number): number}))
	}
	own := program(t, dir)
	all = append(all, tarOf(t, map[string][]byte{"program": own, "sbin/init": own}))
	var openers []tarball.Opener
	for _, b := range all {
		openers = append(openers, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil })
	}
	config.Env = []string{"OF_IMAGE=by the image"}
	return saved(t, openers, config)
}

// saved writes an image of layers as `docker save` does.
func saved(t *testing.T, layers []tarball.Opener, config v1.Config) string {
	t.Helper()
	img := empty.Image
	for _, open := range layers {
		l, err := tarball.LayerFromOpener(open)
		if err == nil {
			img, err = mutate.AppendLayers(img, l)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	conf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	conf = conf.DeepCopy()
	conf.OS, conf.Architecture = "linux", "amd64"
	conf.Config = config
	if img, err = mutate.ConfigFile(img, conf); err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewTag("made:1")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := tarball.WriteToFile(file, ref, img); err != nil {
		t.Fatal(err)
	}
	return file
}

// loader returns musl's loader, from Debian's package.
func loader(t *testing.T, dir string) []byte {
	t.Helper()
	for _, line := range []string{"apt-get -q download musl", "dpkg-deb -x musl_*.deb musl"} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, "musl", "lib", "*", "libc.so"))
	if err != nil || len(found) == 0 {
		if found, err = filepath.Glob(filepath.Join(dir, "musl", "*", "*", "*", "libc.so")); err != nil || len(found) == 0 {
			t.Fatalf("the package musl has no libc.so: %v", err)
		}
	}
	b, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// program returns a program that musl's loader loads. It uses no function of musl.
func program(t *testing.T, dir string) []byte {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "containers", "testdata", "main.go.txt"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "main.go"), source, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildmode=pie", "-ldflags=-I /lib/ld-musl-x86_64.so.1",
		"-o", "program", "main.go")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func tarOf(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for path, data := range files {
		h := tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o755, Size: int64(len(data))}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
