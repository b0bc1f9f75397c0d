package deb

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/forkd/forkd/client"
)

// debian is a Debian with systemd in a VM, reached by ssh as root.
type debian struct {
	dir  string // with the disk, the console and the key
	port int    // of ssh, on loopback
}

// packagesOfDebian are the packages of the guest. The rest of forkd's dependencies is in them.
const packagesOfDebian = "systemd-sysv,udev,dbus,initramfs-tools,openssh-server,passwd,adduser,libcap2-bin,kmod," +
	"ca-certificates,man-db,procps,linux-image-cloud-amd64"

// customize prepares the root: the key of this test, and DHCP.
const customize = `set -e
install -d -m 700 "$1/root/.ssh"
cp "$KEY" "$1/root/.ssh/authorized_keys"
printf '[Match]\nName=e*\n[Network]\nDHCP=yes\n' >"$1/etc/systemd/network/10-net.network"
chroot "$1" systemctl enable systemd-networkd ssh
echo package >"$1/etc/hostname"
cp "$1"/boot/vmlinuz-* "$OUT/vmlinuz"
cp "$1"/boot/initrd.img-* "$OUT/initrd"
`

// boot makes a Debian and boots it. It ends with the test.
func boot(t *testing.T) *debian {
	t.Helper()
	d := &debian{dir: t.TempDir(), port: freePort(t)}
	d.makeKey(t)
	d.makeDisk(t)
	cmd := exec.Command("qemu-system-x86_64", d.args()...)
	cmd.Dir = d.dir
	log, err := os.Create(filepath.Join(d.dir, "qemu.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log.Close()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(d.dir, "console.log"))
			t.Logf("console:\n%s", b[max(0, len(b)-4000):])
		}
	})
	for deadline := time.Now().Add(5 * time.Minute); ; {
		if _, err := d.try("systemctl is-system-running --wait"); err == nil {
			return d
		} else if time.Now().After(deadline) {
			t.Fatalf("the VM does not answer: %v", err)
		}
		time.Sleep(time.Second) // elapses: the VM boots; there is nothing to wait for
	}
}

// mirrorOf returns the mirror of this host's own sources of packages.
func mirrorOf(t *testing.T) string {
	t.Helper()
	// Each line: a site, and its path to the suites.
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

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (d *debian) makeKey(t *testing.T) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	line, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"key": pem.EncodeToMemory(block), "key.pub": ssh.MarshalAuthorizedKey(line)} {
		if err := os.WriteFile(filepath.Join(d.dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// makeDisk makes a root from the host's own sources of packages.
func (d *debian) makeDisk(t *testing.T) {
	t.Helper()
	suite := cmp.Or(os.Getenv("FORKD_TEST_SUITE"), "bookworm")
	mirror := mirrorOf(t)
	sources, packages := []string{"deb " + mirror + " " + suite + " main"}, packagesOfDebian
	if suite == "bookworm" { // its own kernel is too old
		sources = append(sources, "deb "+mirror+" bookworm-backports main")
		packages += "/bookworm-backports"
	}
	hook := filepath.Join(d.dir, "customize")
	if err := os.WriteFile(hook, []byte(customize), 0o600); err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(d.dir, "root")
	args := []string{"--variant=minbase", "--aptopt=APT::Install-Recommends \"false\"", "--include=" + packages,
		fmt.Sprintf(`--customize-hook=KEY=%s/key.pub OUT=%s sh %s "$1"`, d.dir, d.dir, hook), suite, tree}
	run(t, "mmdebstrap", append(args, sources...)...)
	disk := filepath.Join(d.dir, "disk.img")
	run(t, "truncate", "-s", "8G", disk)
	run(t, "mkfs.ext4", "-q", "-F", "-d", tree, disk)
	if err := os.RemoveAll(tree); err != nil {
		t.Fatal(err)
	}
}

// args returns QEMU's command line: the emulated CPU of the machine, with SVM for VMs in it.
// internal/machine/appliance has the reasons for the spare first CPU and the interrupt remapping.
func (d *debian) args() []string {
	return []string{"-name", "package", "-machine", "q35,vmport=off,smm=off", "-accel", "tcg",
		"-cpu", "max,+svm,+npt,-erms,-fsrm,-fzrm,-fsrs,-fsrc", "-smp", "3", "-m", "4000",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", "vmlinuz", "-initrd", "initrd",
		"-append", "root=/dev/vda rw console=ttyS0 mitigations=off no_timer_check nowatchdog isolcpus=0 irqaffinity=1-2",
		"-serial", "file:console.log", "-device", "intel-iommu,intremap=on,eim=on",
		"-netdev", fmt.Sprintf("user,id=n0,hostfwd=tcp:127.0.0.1:%d-:22", d.port),
		"-device", "virtio-net-pci,netdev=n0,romfile=",
		"-drive", "if=none,id=d,file=disk.img,format=raw,cache=unsafe", "-device", "virtio-blk-pci,drive=d",
		"-device", "virtio-rng-pci"}
}

// ssh returns an ssh client. args are a command for the guest, or options and their values.
func (d *debian) ssh(args ...string) *exec.Cmd {
	return exec.Command("ssh", append([]string{"-F", "none", "-i", filepath.Join(d.dir, "key"), "-p", fmt.Sprint(d.port),
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
		"-o", "ConnectTimeout=20", "-l", "root", "127.0.0.1"}, args...)...)
}

// try runs a script in the guest.
func (d *debian) try(script string) (string, error) {
	out, err := d.ssh(script).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// sh runs a script in the guest, which must succeed, and returns its output.
func (d *debian) sh(t *testing.T, script string) string {
	t.Helper()
	out, err := d.try("set -e\n" + script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// copy copies a file into the guest's home directory of root.
func (d *debian) copy(t *testing.T, file, name string) {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd := d.ssh("cat >" + name)
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v\n%s", file, err, out)
	}
}

// until waits until a script in the guest succeeds.
func (d *debian) until(t *testing.T, limit time.Duration, script string) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		_, err := d.try(script)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			journal, _ := d.try("journalctl -u forkd -u forkd-vms --no-pager | tail -30")
			t.Fatalf("not within %s: %v\n%s", limit, err, journal)
		}
		time.Sleep(500 * time.Millisecond) // elapses: another system's state, which is asked again
	}
}

// client returns a client of the daemon in the guest: ssh forwards its socket, as root.
func (d *debian) client(t *testing.T) *client.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	cmd := d.ssh("-N", "-L", socket+":/run/forkd/forkd.sock")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	c, err := client.New(client.Options{URL: "unix://" + socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	for deadline := time.Now().Add(time.Minute); c.Health(t.Context()) != nil; {
		if time.Now().After(deadline) {
			t.Fatal("ssh does not forward the daemon's socket")
		}
		time.Sleep(200 * time.Millisecond) // elapses: ssh connects
	}
	return c
}
