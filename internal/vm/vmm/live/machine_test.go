package live

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/images/initramfs"
	"github.com/forkd/forkd/internal/leaf/linetime"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/serial"
	"github.com/forkd/forkd/internal/vm/vmm"
)

const (
	testCmdline = vmspec.KernelArgs + " forkd.test="
	consoleMax  = 1 << 20
	bootLimit   = 3 * time.Minute // for loaded machines; only a failure waits this long
)

// guestVM is a machine under test with its console.
type guestVM struct {
	*Machine
	t       *testing.T
	console string
	ended   chan vmm.Exit
}

// newShell creates a shell that is closed with the test.
func newShell(t *testing.T, shape vmspec.Shape) *guestVM {
	t.Helper()
	return newShellLogging(t, shape, consoleMax)
}

// newShellLogging is newShell with another limit of the console log.
func newShellLogging(t *testing.T, shape vmspec.Shape, max int64) *guestVM {
	t.Helper()
	kvmtest.Require(t)
	sys, err := kvm.Open("/dev/kvm")
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close()
	g := &guestVM{t: t, console: filepath.Join(t.TempDir(), "console"), ended: make(chan vmm.Exit, 1)}
	f, err := os.Create(g.console)
	if err != nil {
		t.Fatal(err)
	}
	log, err := serial.NewLog(f, max)
	if err != nil {
		t.Fatal(err)
	}
	g.Machine, err = New(Config{KVM: sys, Shape: shape, Console: log, OnExit: func(e vmm.Exit) { g.ended <- e }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && g.Status().State == vmm.StateRunning {
			t.Log(g.stand())
		}
		g.Close()
		if t.Failed() {
			t.Logf("console:\n%s", g.text())
		}
	})
	return g
}

// bootRole boots the kernel with this test binary as init in the given role.
func bootRole(t *testing.T, role string, shape vmspec.Shape) *guestVM {
	t.Helper()
	g := newShell(t, shape)
	kernel, err := os.Open(kvmtest.Fixture(t, "vmlinux"))
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	initrd := testInitrd(t)
	if err := g.Boot(vmm.BootConfig{Kernel: kernel, Initrd: memoryFile(t, initrd), Cmdline: testCmdline + role, CID: 3}); err != nil {
		t.Fatal(err)
	}
	return g
}

// memoryFile returns an unnamed file with the given content.
func memoryFile(t testing.TB, content []byte) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "memory file")
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return f
}

func testInitrd(t *testing.T) []byte {
	t.Helper()
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := initramfs.Write(&buf, []initramfs.Entry{
		initramfs.File("init", 0o755, exe), initramfs.Dir("dev", 0o755), initramfs.Char("dev/console", 0o600, 5, 1),
	}); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// text returns the console without the times of its lines.
func (g *guestVM) text() string {
	b, _ := os.ReadFile(g.console)
	return string(linetime.Plain(b))
}

// waitFor waits until the console shows want.
func (g *guestVM) waitFor(want string) {
	g.t.Helper()
	deadline := time.Now().Add(bootLimit)
	for !strings.Contains(g.text(), want) {
		if time.Now().After(deadline) {
			g.t.Fatalf("the guest did not say %q within %v; %s", want, bootLimit, g.stand())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// stand reports the positions of the vCPUs twice, for a guest that hangs.
func (g *guestVM) stand() string {
	var out strings.Builder
	for range 2 {
		if err := g.Pause(); err != nil {
			return err.Error()
		}
		for i, v := range g.cpus.all {
			r, _ := v.cpu.Regs()
			mp, _ := v.cpu.MPState()
			sr, _ := v.cpu.SRegs()
			var events kvm.VCPUEvents
			v.cpu.Events(&events)
			fmt.Fprintf(&out, "vCPU %d: RIP %#x, flags %#x, CR2 %#x, MP state %d, events % x; ", i, r.RIP, r.RFLAGS, sr.CR2, mp, events[:16])
			msrs, _ := v.cpu.MSRs([]uint32{msrTSC, msrTSCDeadline})
			fmt.Fprintf(&out, "TSC and deadline %v; ", msrs)
		}
		for i := range g.devices.slots {
			fmt.Fprintf(&out, "device %d: %s; ", i, g.rings(i))
		}
		g.Resume()
		time.Sleep(100 * time.Millisecond) // elapses: where it stands is looked at twice
	}
	return out.String()
}

// rings reports the positions of both sides of a device's queues
// (docs/inside/formats/device-state.md).
func (g *guestVM) rings(slot int) string {
	b, err := g.devices.slots[slot].transport.Save()
	if err != nil {
		return err.Error()
	}
	const head, entry = 2 + 7*4 + 8 + 1 + 1, 32
	le := binary.LittleEndian
	var out strings.Builder
	fmt.Fprintf(&out, "status %#x interrupt %#x", le.Uint32(b[6:]), le.Uint32(b[10:]))
	for q := range int(b[head-1]) {
		e := b[head+q*entry:]
		size, avail, used := uint64(le.Uint16(e)), le.Uint64(e[12:]), le.Uint64(e[20:])
		at := func(gpa uint64) uint16 {
			var w [2]byte
			g.mem.ReadAt(w[:], gpa)
			return le.Uint16(w[:])
		}
		fmt.Fprintf(&out, ", queue %d: avail %d taken %d event %d, used %d written %d event %d",
			q, at(avail+2), le.Uint16(e[28:]), at(used+4+8*size), at(used+2), le.Uint16(e[30:]), at(avail+4+2*size))
	}
	return out.String()
}

// waitEnd waits until the guest has ended.
func (g *guestVM) waitEnd() vmm.Exit {
	g.t.Helper()
	select {
	case e := <-g.ended:
		return e
	case <-time.After(bootLimit):
		g.t.Fatalf("the guest did not end within %v; %s", bootLimit, g.stand())
		panic("unreachable")
	}
}

func shape(mib, cpus int) vmspec.Shape { return vmspec.Shape{MemoryMiB: mib, VCPUs: cpus} }

func TestBootsToInitAndPowersOff(t *testing.T) {
	g := bootRole(t, "hello", shape(256, 1))
	if e := g.waitEnd(); e.Kind != vmm.ExitPowerOff {
		t.Fatalf("ended with %+v, want poweroff", e)
	}
	if !strings.Contains(g.text(), "hello from the guest") {
		t.Fatal("init said nothing")
	}
}

func TestGuestResetsEnd(t *testing.T) {
	for _, role := range []string{"reboot", "panic"} {
		t.Run(role, func(t *testing.T) {
			if e := bootRole(t, role, shape(256, 1)).waitEnd(); e.Kind != vmm.ExitReset {
				t.Fatalf("ended with %+v, want reset", e)
			}
		})
	}
}

func TestVCPUsAndMemory(t *testing.T) {
	for _, c := range []struct{ cpus, mib int }{{1, 128}, {2, 256}, {8, 512}, {1, 4096}} {
		t.Run(fmt.Sprintf("%d vCPUs %d MiB", c.cpus, c.mib), func(t *testing.T) {
			g := bootRole(t, "smp", shape(c.mib, c.cpus))
			g.waitEnd()
			if want := fmt.Sprintf("cpus %d\n", c.cpus); !strings.Contains(strings.ReplaceAll(g.text(), "\r", ""), want) {
				t.Fatalf("console lacks %q", want)
			}
		})
	}
}

func TestPlatform(t *testing.T) {
	g := bootRole(t, "devices", shape(256, 1))
	g.waitEnd()
	for _, want := range []string{"current_clocksource: kvm-clock", "acpi LNRO0005:00", "acpi VMGENCTR:00", "acpi ACPI0013:00"} {
		if !strings.Contains(g.text(), want) {
			t.Errorf("the guest did not find %q", want)
		}
	}
	t.Log(g.text())
}
