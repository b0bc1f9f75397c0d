package engine_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// realImages is an image of the fixtures' kernel, agent and root.
type realImages struct{ kernel, initrd, root, upper string }

func (i realImages) Image(context.Context, string) (sandbox.Image, error) {
	return sandbox.Image{
		Name: "fixture", Digest: "sha256:0", Kernel: i.kernel, Initrd: i.initrd, Root: i.root, Upper: i.upper,
		MemoryMiB: 128, VCPUs: 1,
	}, nil
}

// newRealHost returns a host with the real VMM, kernel and agent.
func newRealHost(t *testing.T) *enginefake.Host {
	t.Helper()
	kvmtest.Require(t)
	h := enginefake.NewHost(t)
	h.Cfg.VMMBinary = kvmtest.Fixture(t, "forkd-vmm")
	h.Cfg.OpenKVM = func() (*os.File, error) { return os.OpenFile("/dev/kvm", os.O_RDWR, 0) }
	h.Cfg.Images = realImages{kvmtest.Fixture(t, "vmlinux"), kvmtest.Fixture(t, "agent.cpio"), kvmtest.Fixture(t, "root.erofs"), ""}
	return h
}

// sh runs a command in a sandbox as root and returns its output.
func sh(h *enginefake.Host, e *engine.Engine, id, script string) string {
	h.T.Helper()
	r, err := e.Exec(h.T.Context(), id, sandbox.ExecRequest{Args: []string{"sh", "-c", script}, User: "root"})
	if err != nil {
		h.T.Fatalf("%s: %q: %v", id, script, err)
	}
	if r.ExitCode != 0 {
		h.T.Errorf("%s: %q: exit code %d: %s", id, script, r.ExitCode, r.Stderr)
	}
	return strings.TrimSpace(string(r.Stdout))
}

// The fake VMs pass the same suite in every run; with real ones it takes a minute.
func TestConformsOverRealVMs(t *testing.T) {
	kvmtest.Soak(t)
	h := newRealHost(t)
	images := h.Cfg.Images.(realImages)
	images.upper = kvmtest.Fixture(t, "py."+image.UpperFile)
	h.Cfg.Images = images
	conforms(h, "fixture")
}

func TestRealGuestsFork(t *testing.T) {
	h := newRealHost(t)
	e := h.Open()
	s, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "fixture"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("snapshot: %+v", s)
	if !enginefake.HasWorkingSet(h, "a") {
		t.Error("no working set was recorded")
	}
	if err := e.SetPool(t.Context(), "a", 4); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "full pool", func() bool { return e.Pools()[0].Ready == 4 })
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 10, Env: map[string]string{"COLOUR": "red"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("armed %s, ready %s, pool %d", r.ArmedWall, r.ReadyWall, r.PoolReady)
	var sbs []sandbox.Info
	for _, c := range r.Children {
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		sbs = append(sbs, c.Info)
	}
	t.Run("each is itself", func(t *testing.T) { areThemselves(t, h, e, sbs, "a") })
	t.Run("memory", func(t *testing.T) {
		m, err := e.Memory(sbs[0].ID)
		if err != nil || m.GuestDirtyKiB == 0 || m.VMMAnonKiB == 0 || m.GuestDirtyKiB > 64<<10 {
			t.Errorf("got %+v, %v", m, err)
		}
		t.Logf("memory: %+v", m)
	})
	t.Run("what one writes no other sees", func(t *testing.T) {
		sh(h, e, sbs[0].ID, "echo mine > /tmp/x; echo root > /etc/x")
		if got := sh(h, e, sbs[1].ID, "ls /tmp/x /etc/x 2>/dev/null; true"); got != "" {
			t.Errorf("another sees %s", got)
		}
	})
	t.Run("ends", func(t *testing.T) { endsAreTold(t, h, e, sbs[:3]) })
	h.Close(e)
	t.Run("adoption", func(t *testing.T) {
		e := h.Open()
		for _, b := range sbs[3:] {
			if got := sh(h, e, b.ID, "hostname"); got != b.ID {
				t.Errorf("%s says it is %s", b.ID, got)
			}
		}
		for _, b := range e.List() {
			if err := e.Kill(t.Context(), b.ID); err != nil {
				t.Error(err)
			}
		}
		if err := e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		h.Empty()
	})
}

// A guest of the oldest kernel has no VM generation ID: only the agent makes its clones differ.
func TestOldKernelsGuestsFork(t *testing.T) {
	h := newRealHost(t)
	h.Cfg.Images = realImages{kvmtest.Fixture(t, "old-vmlinux"), kvmtest.Fixture(t, "old-agent.cpio"), kvmtest.Fixture(t, "root.erofs"), ""}
	e := h.Open()
	if _, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "old", Image: "fixture"}, nil); err != nil {
		t.Fatal(err)
	}
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "old", N: 3, Env: map[string]string{"COLOUR": "red"}})
	if err != nil {
		t.Fatal(err)
	}
	var sbs []sandbox.Info
	for _, c := range r.Children {
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		sbs = append(sbs, c.Info)
	}
	t.Logf("guests run %s", sh(h, e, sbs[0].ID, "uname -r"))
	areThemselves(t, h, e, sbs, "old")
	sh(h, e, sbs[0].ID, "echo branched > /tmp/x")
	b, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sbs[0].ID, Tag: "later", N: 1})
	if err != nil {
		t.Fatal(err)
	}
	child := b.Fork.Children[0]
	if child.Err != nil {
		t.Fatal(child.Err)
	}
	if got := sh(h, e, child.Info.ID, "cat /tmp/x"); got != "branched" {
		t.Errorf("the branch's child has %q", got)
	}
}

func areThemselves(t *testing.T, h *enginefake.Host, e *engine.Engine, sbs []sandbox.Info, parent string) {
	seen := map[string]string{}
	for i, b := range sbs {
		out := sh(h, e, b.ID, `hostname; cat /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1; echo $FORKD_INDEX $FORKD_PARENT $COLOUR; date +%s`)
		lines := strings.Split(out, "\n")
		if len(lines) != 5 {
			t.Fatalf("%s says %q", b.ID, out)
		}
		if lines[0] != b.ID || lines[3] != fmt.Sprintf("%d %s red", i+1, parent) {
			t.Errorf("%s says %q", b.ID, lines)
		}
		for _, l := range lines[1:3] {
			if other := seen[l]; other != "" || len(l) < 32 {
				t.Errorf("%s and %s share %q", b.ID, other, l)
			}
			seen[l] = b.ID
		}
		var sec int64
		fmt.Sscan(lines[4], &sec)
		if off := time.Since(time.Unix(sec, 0)); off < -time.Minute || off > time.Minute {
			t.Errorf("%s: its clock is %s behind", b.ID, off)
		}
	}
}

// endsAreTold ends three guests in three ways.
func endsAreTold(t *testing.T, h *enginefake.Host, e *engine.Engine, sbs []sandbox.Info) {
	if err := unix.Kill(sbs[0].PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for i, script := range []string{1: "echo c > /proc/sysrq-trigger", 2: "echo o > /proc/sysrq-trigger"} {
		if script != "" {
			_, _ = e.Exec(t.Context(), sbs[i].ID, sandbox.ExecRequest{Args: []string{"sh", "-c", script + "; sleep 30"}, User: "root", Timeout: 20 * time.Second})
		}
	}
	for i, want := range []string{"signal: killed", "kernel panicked: sysrq triggered crash", "powered off"} {
		enginefake.Eventually(t, "end of "+sbs[i].ID, enginefake.Failed(e, sbs[i].ID))
		if info, _ := e.Get(sbs[i].ID); !strings.Contains(info.Reason, want) {
			t.Errorf("%s: the reason is %q, want %q", sbs[i].ID, info.Reason, want)
		}
	}
}

func TestARealGuestThatPanicsAtBoot(t *testing.T) {
	h := newRealHost(t)
	real := h.Cfg.Images.(realImages)
	h.Cfg.Images = realImages{real.kernel, "", real.root, ""} // no initrd, so no root file system
	e := h.Open()
	_, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "fixture"}, nil)
	enginefake.WantError(t, err, sandbox.ErrBootFailed, "kernel panicked: VFS: Unable to mount root fs", "the console's last lines:")
	if s := h.Stored(); s != "" {
		t.Errorf("the store holds %s", s)
	}
	h.Empty()
}

func TestFilesThatAreNoKernelAndNoRoot(t *testing.T) {
	h := newRealHost(t)
	h.Cfg.BootWait = 60 * time.Second
	real := h.Cfg.Images.(realImages)
	e := h.Open()
	h.Cfg.Images = real
	t.Run("kernel", func(t *testing.T) {
		_, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Kernel: real.root, Rootfs: real.root}, nil)
		enginefake.WantError(t, err, sandbox.ErrBootFailed, "boot VM:")
	})
	t.Run("root", func(t *testing.T) {
		cut := t.TempDir() + "/root"
		b, err := os.ReadFile(real.root)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(cut, b[:4096], 0o600); err != nil {
			t.Fatal(err)
		}
		e.OpsConfig().Images = realImages{real.kernel, real.initrd, cut, ""}
		_, err = e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "fixture"}, nil)
		enginefake.WantError(t, err, sandbox.ErrBootFailed, "the console's last lines:")
	})
	h.Empty()
}

// diskBlocks returns the host disk space used by a sandbox's own disk, in bytes.
func diskBlocks(h *enginefake.Host, e *engine.Engine, id string) int64 {
	h.T.Helper()
	b, _, err := e.Table().Find(id)
	if err != nil || len(b.Disks().List()) != 1 {
		h.T.Fatalf("sandbox %s has overlay files %v, %v", id, b, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(b.Disks().List()[0].Overlay, &st); err != nil {
		h.T.Fatal(err)
	}
	return st.Blocks * 512
}

func TestRealGuestsWriteToADiskOfTheirOwn(t *testing.T) {
	h := newRealHost(t)
	images := h.Cfg.Images.(realImages)
	images.upper = kvmtest.Fixture(t, "py."+image.UpperFile)
	h.Cfg.Images = images
	e := h.Open()
	if _, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "fixture"}, nil); err != nil {
		t.Fatal(err)
	}
	sbs := h.Fork(e, "a", 2)
	writer, sibling := sbs[0].ID, sbs[1].ID
	const size = 20 << 20
	before := diskBlocks(h, e, writer)
	sh(h, e, writer, "dd if=/dev/urandom of=/root/big bs=1M count=20 2>/dev/null && sync")
	sum := sh(h, e, writer, "sha256sum < /root/big")
	full := diskBlocks(h, e, writer)
	if full-before < size {
		t.Errorf("%d bytes were written and flushed, the overlay file has grown by %d", size, full-before)
	}
	sh(h, e, writer, "echo 3 > /proc/sys/vm/drop_caches")
	if got := sh(h, e, writer, "sha256sum < /root/big"); got != sum {
		t.Errorf("it read back %s, want %s", got, sum)
	}
	if got := sh(h, e, sibling, "ls /root; true"); got != "" {
		t.Errorf("its sibling sees %s", got)
	}
	sh(h, e, writer, "rm /root/big && sync")
	if now := diskBlocks(h, e, writer); full-now < size*9/10 {
		t.Errorf("removing %d bytes freed %d", size, full-now)
	}
	for _, b := range sbs {
		if err := e.Kill(t.Context(), b.ID); err != nil {
			t.Error(err)
		}
	}
	if left := h.OverlayFiles(); left != "" {
		t.Errorf("left %q", left)
	}
}
