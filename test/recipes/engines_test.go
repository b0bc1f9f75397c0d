package recipes

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/dockerfile"
	"github.com/forkd/forkd/test/harness"
)

// image is the reference of the container image that the engines run.
const image = "example.org/box:1"

// containerImage writes a container image as `docker save` does: busybox, and a page for its server.
// configure, unless nil, changes its settings.
func containerImage(t *testing.T, configure func(*v1.Config)) string {
	t.Helper()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("%v: make deps installs busybox-static", err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, f := range []struct {
		name, link string
		data       []byte
	}{{name: "bin/busybox", data: busybox}, {name: "bin/sh", link: "busybox"}, {name: "www/page", data: []byte("a page\n")}} {
		h := tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.data)), Typeflag: tar.TypeReg}
		if f.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err == nil {
		img, err = mutate.ConfigFile(img, configOf(t, img, configure))
	}
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewTag(image)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := tarball.WriteToFile(file, ref, img); err != nil {
		t.Fatal(err)
	}
	return file
}

func configOf(t *testing.T, img v1.Image, configure func(*v1.Config)) *v1.ConfigFile {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Config.Env = "linux", "amd64", []string{"PATH=/bin"}
	if configure != nil {
		configure(&c.Config)
	}
	return c
}

// sandbox runs commands in a sandbox.
type sandbox struct {
	m  *harness.Machine
	id string
}

func (s sandbox) run(t *testing.T, script string) string {
	t.Helper()
	return s.as(t, "user", script)
}

func (s sandbox) as(t *testing.T, user, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "bin", "forkd"), "--url", s.m.URL, "--token", s.m.Token,
		"exec", "-u", user, s.id, "--", "bash", "-c", script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// get requests the page of the container's server through Docker's port.
const get = `exec 3<>/dev/tcp/localhost/8080; printf 'GET /page HTTP/1.0\r\n\r\n' >&3; tail -n 1 <&3`

// TestContainerEngines runs containers in a sandbox, and forks it while they run.
func TestContainerEngines(t *testing.T) {
	kvmtest.Soak(t)
	m := machine(t)
	const recipe = "test-engines"
	m.Forkd(t, "image", "build", "testdata/engines")
	if strings.Contains("\n"+string(m.Forkd(t, "-q", "snapshot", "ls")), "\n"+recipe+"\n") {
		m.Forkd(t, "snapshot", "rm", "--force", recipe)
	}
	m.Forkd(t, "snapshot", "create", "--image", recipe, "--tag", recipe)
	parent := sandbox{m, strings.TrimSpace(string(m.Forkd(t, "-q", "fork", recipe)))}
	m.Forkd(t, "cp", containerImage(t, nil), parent.id+":/home/user/image.tar")

	t.Run("modules", func(t *testing.T) {
		for script, want := range map[string]string{
			"modprobe dummy && ip link add dummy7 type dummy && ip -o link show dummy7 | cut -d: -f2":                                  "dummy7",
			"su user -c 'test -w /dev/net/tun && echo usable'":                                                                         "usable",
			"mksquashfs /etc/hostname /tmp/s.img -quiet >/dev/null && mkdir -p /mnt/s && mount -o loop /tmp/s.img /mnt/s && ls /mnt/s": "hostname",
			"modprobe no_such_module 2>&1 | grep -c 'not found'":                                                                       "1",
		} {
			if got := parent.as(t, "root", script); got != want {
				t.Errorf("%s: %q, want %q", script, got, want)
			}
		}
	})
	t.Run("docker", func(t *testing.T) {
		if got := parent.run(t, "docker info --format '{{.Driver}} {{.CgroupVersion}}'"); got != "overlay2 2" {
			t.Errorf("docker info: %q", got)
		}
		parent.run(t, "docker load -i image.tar")
		if got := parent.run(t, "docker run --rm "+image+" sh -c 'echo from a container'"); got != "from a container" {
			t.Errorf("a container says %q", got)
		}
		parent.run(t, "docker run -d --name web -p 8080:80 "+image+" busybox httpd -f -p 80 -h /www")
		if got := parent.run(t, get); got != "a page" {
			t.Errorf("the server of the container: %q", got)
		}
	})
	t.Run("forks of running containers", func(t *testing.T) {
		ids := strings.Fields(string(m.Forkd(t, "-q", "branch", parent.id, "-n", "2", "--tag", "engines-branch")))
		if len(ids) < 2 {
			t.Fatalf("the branch is %q", ids)
		}
		one, two := sandbox{m, ids[len(ids)-2]}, sandbox{m, ids[len(ids)-1]}
		one.run(t, "docker exec web sh -c 'echo changed > /www/page'")
		for s, want := range map[sandbox]string{one: "changed", two: "a page", parent: "a page"} {
			if got := s.run(t, get); got != want {
				t.Errorf("the server in %s: %q, want %q", s.id, got, want)
			}
		}
		one.run(t, "docker rm -f web && docker run --rm "+image+" sh -c true")
		m.Forkd(t, "kill", one.id, two.id)
		m.Forkd(t, "snapshot", "rm", "engines-branch")
	})
	t.Run("an exported snapshot", func(t *testing.T) {
		m.Image(t, "python-numpy", "python-numpy")
		m.Forkd(t, "cp", dockerfile.Export(t, m, "python-numpy"), parent.id+":/home/user/exported.tar")
		parent.run(t, "docker load -i exported.tar && rm exported.tar")
		want := "user\n/srv\nhello v1\nfirst\nroot\nyes one two\nfrom an archive"
		if got := parent.run(t, "docker run --rm dockerfile-test:latest"); got != want {
			t.Errorf("Docker runs %q, want %q", got, want)
		}
	})
	t.Run("podman", func(t *testing.T) {
		parent.as(t, "root", "podman load -q -i /home/user/image.tar")
		if got := parent.as(t, "root", "podman run --rm "+image+" sh -c 'echo from podman'"); got != "from podman" {
			t.Errorf("a container says %q", got)
		}
	})
	t.Run("bubblewrap", func(t *testing.T) {
		got := parent.run(t, "bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp sh -c 'echo $$'")
		if got != "2" {
			t.Errorf("the process id in the sandbox is %q", got)
		}
	})
	m.Forkd(t, "kill", parent.id)
}
