package wheel

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/testing/kvmtest"
)

const root = "../.."

// install is what a new user does first. The machine's QEMU is not there yet.
const install = `set -e
for absent in go make qemu-system-x86_64 mmdebstrap; do
	if command -v $absent; then echo "the root is not clean"; exit 1; fi
done
python3 -m venv /root/venv
/root/venv/bin/pip install --quiet /root/forkd-*.whl
export PATH=/root/venv/bin:$PATH
forkd version
echo "--- demo"
! forkd demo -n 1 2>&1
echo "--- doctor"
! forkd doctor 2>&1
echo "--- python"
! python3 -c 'import forkd; forkd.Forkd()' 2>&1
`

// use installs the Debian packages as the message says, and forks.
const use = `set -e
export PATH=/root/venv/bin:$PATH DEBIAN_FRONTEND=noninteractive
step() { echo "--- $(($(date +%s) - began)) s: $*"; }
began=$(date +%s)
sh /root/venv/share/forkd/scripts/deps.sh >/root/deps.log 2>&1 || { tail -20 /root/deps.log; exit 1; }
if command -v go make; then echo "the packages bring Go or make"; exit 1; fi
step packages
forkd demo -n 3
step demo
forkd snapshot create --image python-numpy --tag py
python3 -c '
import forkd
client = forkd.Forkd()
sandbox = client.snapshot("py").fork(ttl=600)
print("eval:", sandbox.eval("6 * 7"))
sandbox.kill()
'
step eval
forkd machine stop
`

// enter runs a script in the root. Its mounts and processes end with it.
const enter = `set -e
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
exec chroot "$1" sh "$2"
`

// environment is that of a login, and the settings of this host for downloads.
func environment() []string {
	out := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		upper := strings.ToUpper(name)
		if strings.HasPrefix(upper, "PIP_") || strings.HasPrefix(upper, "SSL_") || strings.HasSuffix(upper, "_PROXY") {
			out = append(out, e)
		}
	}
	return out
}

// inRoot runs a script in the root and returns its output.
func inRoot(t *testing.T, dir, script string) string {
	t.Helper()
	file := filepath.Join(dir, "root", "script")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
		"sh", "-c", enter, "sh", dir, "/root/script")
	cmd.Env = environment()
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// makeRoot makes a Debian with Python, from this host's sources of packages, and puts the wheel in it.
func makeRoot(t *testing.T) string {
	t.Helper()
	wheels, err := filepath.Glob(filepath.Join(root, "dist", "forkd-*x86_64.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("dist has %v, %v: make wheels", wheels, err)
	}
	dir := filepath.Join(t.TempDir(), "root")
	mirror := mirrorOf(t)
	run(t, "mmdebstrap", "--variant=minbase", `--aptopt=APT::Install-Recommends "false"`,
		"--include=python3,python3-pip,python3-venv,ca-certificates", "bookworm", dir, "deb "+mirror+" bookworm main")
	run(t, "cp", wheels[0], filepath.Join(dir, "root"))
	for _, file := range []string{"/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"} {
		if _, err := os.Stat(file); err == nil {
			run(t, "cp", file, filepath.Join(dir, file))
		}
	}
	return dir
}

// mirrorOf returns the mirror of this host's own sources of packages.
func mirrorOf(t *testing.T) string {
	t.Helper()
	out := run(t, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main",
		"Architecture: amd64")
	for _, line := range strings.Fields(out) {
		if !strings.Contains(line, "security") && strings.Contains(line, "debian") {
			return line
		}
	}
	t.Fatalf("apt-get indextargets lists no mirror of Debian:\n%s", out)
	return ""
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestWheel goes from pip to the first eval, in a Debian that has neither Go nor make nor QEMU.
func TestWheel(t *testing.T) {
	kvmtest.Soak(t)
	if os.Getuid() != 0 {
		t.Fatal("the test makes a root directory and mounts in it: run it as root")
	}
	dir := makeRoot(t)
	began := time.Now()
	out := inRoot(t, dir, install)
	t.Logf("install: %.0f s", time.Since(began).Seconds())
	for _, part := range []string{"--- demo", "--- doctor", "--- python"} {
		_, text, _ := strings.Cut(out, part)
		text, _, _ = strings.Cut(text, "\n---")
		// A user without QEMU reads the command that installs it, and which one is missing.
		for _, want := range []string{"qemu-system-x86_64 is not installed", "sh /root/venv/share/forkd/scripts/deps.sh"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s without QEMU does not name %q:\n%s", part, want, text)
			}
		}
	}
	out = inRoot(t, dir, use)
	for _, want := range []string{"--- ", "eval: 42"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q", want)
		}
	}
	t.Logf("pip install to the first eval: %.0f s", time.Since(began).Seconds())
}
