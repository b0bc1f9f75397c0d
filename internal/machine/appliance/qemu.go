package appliance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/machine/appliance/guest"
)

const (
	qemuProgram = "qemu-system-x86_64"
	accelTCG    = "tcg"
	accelKVM    = "kvm"
)

// Ports of the services inside the appliance.
const (
	guestAPIPort   = 8889
	guestAgentPort = 1024
)

// findQEMU locates QEMU and asks for its version.
func findQEMU(ctx context.Context) (string, version, error) {
	path, err := exec.LookPath(qemuProgram)
	if err != nil {
		return "", version{}, fmt.Errorf("%s is not installed: %s", qemuProgram, upgradeHint)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", version{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	v, err := parseVersion(string(out))
	return path, v, err
}

// launch is all that decides QEMU's command line.
type launch struct {
	name      string
	accel     string
	x2apic    bool // see hasX2APIC
	ipv6      bool // see hasIPv6
	spec      Spec
	apiPort   int
	agentPort int
	extra     string // more kernel command line
}

// kernelCommandLine keeps the boot short and quiet. Mitigations are off because
// the appliance's kernel is emulated: they cost and protect nothing there; with
// hardware acceleration they stay on. panic=-1 with -no-reboot ends QEMU.
func (l launch) kernelCommandLine() string {
	args := []string{
		"console=ttyS0", "quiet", "loglevel=4", "panic=-1", "oops=panic", "reboot=t",
		"rdinit=/usr/bin/forkd", "audit=0", "random.trust_cpu=on", "cryptomgr.notests",
	}
	if l.accel == accelTCG {
		args = append(args, "mitigations=off", "no_timer_check", "lpj=4000000", "nowatchdog", "rcupdate.rcu_expedited=1")
	}
	if l.x2apic {
		args = append(args, "intel_iommu=off") // its interrupt remapping stays on
	}
	if l.sparesFirstCPU() {
		args = append(args, "isolcpus=0", "cgroup_disable=cpuset", fmt.Sprintf("irqaffinity=1-%d", l.spec.CPUs))
	}
	if l.extra != "" {
		args = append(args, l.extra)
	}
	return strings.Join(append(args, "--", "machine-init"), " ") // what follows -- is init's own
}

// sparesFirstCPU tells whether the appliance gets one CPU more than was asked
// for, its first, on which nothing runs. TCG keeps the state of SVM (GIF, nested
// paging on or off) in one word per CPU, and the first CPU's word is rewritten,
// not atomically, by every other CPU that restores x87 state: cpu_set_fpus calls
// cpu_clear_ignne, which means first_cpu (target/i386/tcg/fpu_helper.c, read in
// QEMU 10.0.2). Where the first CPU enters and leaves guests, an update is
// lost sooner or later: it takes an interrupt before its GS is back and panics,
// goes on in a guest with the host's registers, or stops taking interrupts. A
// first CPU that never enters a guest has nothing to lose; one alone, no rival.
func (l launch) sparesFirstCPU() bool { return l.accel == accelTCG && l.spec.CPUs > 1 }

// cpus is how many CPUs QEMU emulates.
func (l launch) cpus() int {
	if l.sparesFirstCPU() {
		return l.spec.CPUs + 1
	}
	return l.spec.CPUs
}

// tcgCPU is what TCG emulates, with the SVM that the appliance's kvm_amd sits
// on, and without the promise that REP MOVSB and REP STOSB are fast: kernels, libc
// and Go would clear and copy by them, which TCG does byte by byte, where they
// move eight at a time without it.
const tcgCPU = "max,+svm,+npt,-erms,-fsrm,-fzrm,-fsrs,-fsrc"

// args is QEMU's command line. Every file is in the machine's directory, which
// is QEMU's working directory.
func (l launch) args() []string {
	cpu := tcgCPU
	if l.accel == accelKVM {
		cpu = "host"
	}
	args := []string{
		"-name", l.name,
		"-machine", "q35,vmport=off,smm=off",
		"-accel", l.accel,
		"-cpu", cpu,
		"-smp", strconv.Itoa(l.cpus()),
		"-m", strconv.Itoa(l.spec.MemoryMiB),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-pidfile", pidFile,
		"-kernel", kernelFile, "-initrd", initrdFile, "-append", l.kernelCommandLine(),
		"-chardev", "file,id=console,path=" + consoleFile + ",append=on",
		"-device", "isa-serial,chardev=console,index=0",
		"-chardev", "socket,id=control,path=" + ctlSocket + ",server=on,wait=off",
		"-device", "isa-serial,chardev=control,index=1",
		"-chardev", "socket,id=qmp,path=" + qmpSocket + ",server=on,wait=off",
		"-mon", "chardev=qmp,mode=control",
		"-netdev", l.network(),
		"-device", "virtio-net-pci,netdev=net0,romfile=",
		"-drive", "if=none,id=data,file=" + diskFile + ",format=raw,cache=writeback,discard=unmap,detect-zeroes=unmap",
		"-device", "virtio-blk-pci,drive=data",
		"-device", "virtio-rng-pci",
	}
	if l.x2apic {
		i := slices.Index(args, "-device") // an IOMMU comes before the devices
		args = slices.Insert(args, i, "-device", "intel-iommu,intremap=on,eim=on")
	}
	return args
}

// network is QEMU's user mode: what the appliance dials, QEMU dials on the host, with
// the rights of its user.
func (l launch) network() string {
	ipv6 := "ipv6=off"
	if l.ipv6 {
		ipv6 = "ipv4=on,ipv6=on,ipv6-net=" + guest.IPv6Net // ipv6=on alone is IPv6 alone
	}
	return strings.Join([]string{"user", "id=net0", ipv6, l.forward(l.apiPort, guestAPIPort),
		l.forward(l.agentPort, guestAgentPort)}, ",")
}

// hasIPv6 says whether the host has a route for IPv6. The appliance has one only then: it
// could not tell that its connections lead nowhere, and programs would wait for them.
func hasIPv6() bool {
	c, err := net.Dial("udp6", "[2000::1]:9") // nothing is sent
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// forward is one port of the appliance on the host's loopback.
func (l launch) forward(host, guest int) string {
	return fmt.Sprintf("hostfwd=tcp:127.0.0.1:%d-:%d", host, guest)
}

func (a *Appliance) qemuName() string { return "forkd-machine-" + a.Name }

var errDied = errors.New("machine died")
