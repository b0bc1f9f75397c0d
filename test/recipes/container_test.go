package recipes

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// A container image's server runs in a snapshot and in each fork of it. Its root has kernel modules.
func TestContainerImageAsAService(t *testing.T) {
	kvmtest.Soak(t)
	m := harness.StartMachine(t, "-recipes")
	const name = "test-container"
	forkd := func(args ...string) (string, error) {
		all := append([]string{"--url", m.URL, "--token", m.Token}, args...)
		out, err := exec.CommandContext(t.Context(), filepath.Join("..", "..", "bin", "forkd"), all...).CombinedOutput()
		return string(out), err
	}
	clean := func() {
		for _, tag := range []string{name, name + "-bad"} {
			_, _ = forkd("snapshot", "rm", "--cascade", tag)
			_, _ = forkd("image", "rm", tag)
		}
	}
	clean()
	t.Cleanup(clean)
	// The server starts late, so that a snapshot without the wait would not have it.
	server := func(c *v1.Config) {
		c.Entrypoint, c.Cmd = []string{"/bin/busybox", "sh", "-c"}, []string{"sleep 3; echo up > /up; exec busybox httpd -f -p 8080 -h /www"}
		c.ExposedPorts = map[string]struct{}{"9999/udp": {}, "8080/tcp": {}}
		c.Healthcheck = &v1.HealthConfig{Test: []string{"CMD-SHELL", "busybox test -e /up && busybox wget -qO- http://127.0.0.1:8080/page"}}
	}
	if out, err := forkd("image", "import", "--name", name, "--start", "--modules", "dummy,veth", containerImage(t, server)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := forkd("snapshot", "create", "--image", name, "--tag", name); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, id := range strings.Fields(string(m.Forkd(t, "-q", "fork", name, "-n", "3"))) {
		began := time.Now()
		out, err := forkd("exec", id, "--", "busybox", "wget", "-qO-", "http://127.0.0.1:8080/page")
		if err != nil || out != "a page\n" {
			t.Errorf("%s: its server answers %q, %v", id, out, err)
		}
		t.Logf("%s answered after %s", id, time.Since(began))
		out, err = forkd("exec", "-u", "root", id, "--", "busybox", "sh", "-c",
			"busybox modprobe dummy && busybox ip link add dummy7 type dummy && busybox ip -o link show dummy7 | busybox cut -d: -f2")
		if err != nil || strings.TrimSpace(out) != "dummy7" {
			t.Errorf("%s: modprobe dummy: %q, %v", id, out, err)
		}
		m.Forkd(t, "kill", id)
	}

	broken := func(c *v1.Config) {
		server(c)
		c.Healthcheck.Test = []string{"CMD-SHELL", "exit 1"}
		c.Cmd = []string{"echo no luck >&2; exit 9"}
	}
	if out, err := forkd("image", "import", "--name", name+"-bad", "--start", containerImage(t, broken)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := forkd("snapshot", "create", "--image", name+"-bad", "--tag", name+"-bad"); err == nil || !strings.Contains(out, "no luck") {
		t.Errorf("a server that fails: %v, %s", err, out)
	}
	for args, want := range map[string]string{
		"--start":                  "neither an entrypoint nor a command",
		"--modules no_such_module": "has no module no_such_module",
		"--modules ../x":           "want a kernel module",
	} {
		all := append([]string{"image", "import", "--local", "--name", name + "-bad"}, strings.Fields(args)...)
		if out, err := forkd(append(all, containerImage(t, nil))...); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %s, want %q", args, err, out, want)
		}
	}
}
