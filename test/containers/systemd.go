package containers

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/test/harness"
)

const systemdImage = "test-systemd"

// systemdServes is in a line of systemd on the console, before it leaves the console to a getty.
const systemdServes = "Reached target basic.target"

// ours is a unit that the image does not start.
const ours = "[Service]\nExecStart=/bin/sh -c 'echo our unit says $$(cat /etc/hostname); exec sleep 1000000'\n"

// systemd runs a Debian whose program is systemd: in the foreground, in a snapshot, and as a service.
func systemd(t *testing.T, m *harness.Machine) {
	clean := func() {
		for tag := range strings.FieldsSeq(string(m.Forkd(t, "-q", "snapshot", "ls"))) {
			if strings.Contains(tag, systemdImage) {
				m.Forkd(t, "snapshot", "rm", "--cascade", tag)
			}
		}
	}
	clean()
	t.Cleanup(clean)
	file := debian(t)
	m.Forkd(t, "image", "import", "--name", systemdImage, file)
	t.Run("foreground", func(t *testing.T) {
		out, code := runAndStop(t, m, "--stop-timeout", "3m", systemdImage)
		if code != 0 || !strings.Contains(out, "Halting system.") || strings.ContainsAny(out, "\r\x1b") {
			t.Errorf("exit code %d after %q", code, out)
		}
	})
	t.Run("service", func(t *testing.T) { systemdService(t, m) })
	m.Forkd(t, "image", "import", "--start", "--name", systemdImage, file)
	t.Run("snapshot", func(t *testing.T) { systemdForks(t, m) })
	m.Forkd(t, "image", "rm", systemdImage)
}

// systemdForks forks a running systemd. The children differ, and both work.
func systemdForks(t *testing.T, m *harness.Machine) {
	m.Forkd(t, "snapshot", "create", "--image", systemdImage, "--tag", systemdImage)
	ids := map[string]string{}
	for id := range strings.FieldsSeq(string(m.Forkd(t, "-q", "fork", systemdImage, "-n", "2"))) {
		t.Cleanup(func() { m.Forkd(t, "kill", id) })
		in := func(line string) string {
			return strings.TrimSpace(string(m.Forkd(t, "exec", id, "--", "sh", "-c", line)))
		}
		if state := in("systemctl is-system-running"); state != "running" {
			t.Errorf("systemd is %q: %s", state, in("systemctl --failed"))
		}
		in("systemctl start ours")
		want := "our unit says " + in("hostname")
		const journal = "journalctl -b -o cat -u ours"
		const wait = "for i in $(seq 100); do " + journal + " | grep -q says && break; sleep 0.2; done; "
		if got := in(wait + journal); !strings.Contains(got, want) {
			t.Errorf("the journal has %q, want %q", got, want)
		}
		in("systemctl stop ours")
		if state := in("systemctl is-active ours || true"); state != "inactive" {
			t.Errorf("the stopped unit is %s", state)
		}
		// Both namespaces have the clone's own names.
		const inits = "P=$(cat /run/forkd/init.pid); cat /etc/machine-id /proc/sys/kernel/random/boot_id; " +
			"cat /proc/$P/root/etc/machine-id /proc/$P/root/proc/sys/kernel/random/boot_id"
		names := strings.Fields(in(inits))
		if len(names) != 4 || names[0] != names[2] || names[1] != names[3] {
			t.Fatalf("the guest and its init are called %q", names)
		}
		if other := ids[names[0]]; other != "" || ids[names[1]] != "" {
			t.Errorf("%s and %s have the same names: %q", id, other, names)
		}
		ids[names[0]], ids[names[1]] = id, id
	}
	if len(ids) != 4 {
		t.Errorf("the children have the names %v", ids)
	}
}

// systemdService runs systemd as a service. Its stop shuts systemd down, and the end of its command ends all of it.
func systemdService(t *testing.T, m *harness.Machine) {
	id := strings.TrimSpace(string(m.Forkd(t, "-q", "fork", warmOf(t, m, systemdImage))))
	t.Cleanup(func() { m.Forkd(t, "kill", id) })
	in := func(line string) string {
		return strings.TrimSpace(string(m.Forkd(t, "exec", id, "--", "sh", "-c", line)))
	}
	const left = "pgrep -c systemd || true"
	m.Forkd(t, "service", "add", id, "web", "--wait", "5m", "--restart", "never", "--stop-timeout", "3m")
	if state := in("systemctl is-system-running"); state != "running" {
		t.Errorf("systemd is %q: %s", state, in("systemctl --failed"))
	}
	m.Forkd(t, "service", "stop", id, "web")
	stopped := until(t, m, id, "stopped", func(s api.Service) bool { return s.State == "stopped" })
	if n := in(left); n != "0" || stopped.ExitCode == nil || *stopped.ExitCode != 0 {
		t.Errorf("%s processes of systemd are left of %+v", n, stopped)
	}
	m.Forkd(t, "service", "start", id, "web")
	until(t, m, id, "ready", func(s api.Service) bool { return s.State == "ready" })
	if n := in(left); n == "0" {
		t.Error("systemd has no process")
	}
	in("pkill -KILL -o forkd-init")
	until(t, m, id, "failed", func(s api.Service) bool { return s.State == "failed" })
	if n := in(left); n != "0" {
		t.Errorf("%s processes of systemd are left of a killed service", n)
	}
}

// debian makes a container image of Debian packages, whose program is systemd.
func debian(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	unit, root := filepath.Join(dir, "ours.service"), filepath.Join(dir, "root.tar")
	if err := os.WriteFile(unit, []byte(ours), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "mmdebstrap", "--variant=minbase", "--include=systemd-sysv,dbus,procps",
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--customize-hook=copy-in "+unit+" /etc/systemd/system", "bookworm", root)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	open := func() (io.ReadCloser, error) { return os.Open(root) }
	return saved(t, []tarball.Opener{open}, v1.Config{Cmd: []string{"/sbin/init"}})
}
