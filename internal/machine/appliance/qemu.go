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

// findQEMU finds QEMU and its version.
func findQEMU(ctx context.Context) (string, version, error) {
	path, err := exec.LookPath(qemuProgram)
	if err != nil {
		return "", version{}, fmt.Errorf("%s is not installed: %s", qemuProgram, upgradeHint())
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

// launch holds all parameters of QEMU's command line.
type launch struct {
	name      string
	accel     string
	x2apic    bool // see hasX2APIC
	ipv6      bool // see hasIPv6
	spec      Spec
	apiPort   int
	agentPort int
	extra     string // additions to the kernel command line
}

// kernelCommandLine keeps the boot short and quiet. Mitigations are off for an emulated kernel, where they cost
// time without protecting; with hardware acceleration they stay on. panic=-1 with -no-reboot ends QEMU.
func (l launch) kernelCommandLine() string {
	args := []string{
		"console=ttyS0", "quiet", "loglevel=4", "panic=-1", "oops=panic", "reboot=t",
		"rdinit=/usr/bin/forkd", "audit=0", "random.trust_cpu=on", "cryptomgr.notests",
	}
	if l.accel == accelTCG {
		args = append(args, "mitigations=off", "no_timer_check", "lpj=4000000", "nowatchdog", "rcupdate.rcu_expedited=1")
	}
	if l.x2apic {
		args = append(args, "intel_iommu=off") // interrupt remapping stays on
	}
	if l.sparesFirstCPU() {
		args = append(args, "isolcpus=0", "cgroup_disable=cpuset", fmt.Sprintf("irqaffinity=1-%d", l.spec.CPUs))
	}
	if l.extra != "" {
		args = append(args, l.extra)
	}
	return strings.Join(append(args, "--", "machine-init"), " ") // arguments after -- are for init
}

// sparesFirstCPU reports whether the appliance gets an additional CPU, its first one, on which nothing runs. TCG
// keeps the state of SVM (GIF, nested paging on or off) in one word per CPU. Every other CPU that restores x87
// state rewrites the first CPU's word, and not atomically: cpu_set_fpus calls cpu_clear_ignne, which uses
// first_cpu (target/i386/tcg/fpu_helper.c, read in QEMU 10.0.2). If the first CPU enters and leaves guests, an
// update is lost sooner or later. Then it takes an interrupt before its GS is restored and panics, continues in a
// guest with the host's registers, or stops taking interrupts. A first CPU that never enters a guest has no state
// to lose, and a single CPU has no other CPU that writes.
func (l launch) sparesFirstCPU() bool { return l.accel == accelTCG && l.spec.CPUs > 1 }

// cpus returns the number of emulated CPUs.
func (l launch) cpus() int {
	if l.sparesFirstCPU() {
		return l.spec.CPUs + 1
	}
	return l.spec.CPUs
}

// tcgCPU is the CPU emulated by TCG. It has SVM for the appliance's kvm_amd. It does not announce fast REP
// MOVSB and REP STOSB: kernels, libc and Go would then use them to clear and copy memory, and TCG executes them
// byte by byte. Without the flags they move eight bytes at a time.
const tcgCPU = "max,+svm,+npt,-erms,-fsrm,-fzrm,-fsrs,-fsrc"

// args returns QEMU's command line. All files are in the machine's directory, which is QEMU's working directory.
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
		i := slices.Index(args, "-device") // an IOMMU must precede the devices
		args = slices.Insert(args, i, "-device", "intel-iommu,intremap=on,eim=on")
	}
	return args
}

// network returns the option for QEMU's user-mode network: QEMU makes the appliance's connections on the host,
// with the rights of its user.
func (l launch) network() string {
	ipv6 := "ipv6=off"
	if l.ipv6 {
		ipv6 = "ipv4=on,ipv6=on,ipv6-net=" + guest.IPv6Net // ipv6=on alone means IPv6 only
	}
	return strings.Join([]string{"user", "id=net0", ipv6, l.forward(l.apiPort, guestAPIPort),
		l.forward(l.agentPort, guestAgentPort)}, ",")
}

// hasIPv6 reports whether the host has an IPv6 route. Only then does the appliance get one: otherwise it could
// not detect that its connections fail, and programs would wait for them.
func hasIPv6() bool {
	c, err := net.Dial("udp6", "[2000::1]:9") // this sends no packet
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// forward returns the option that forwards a port of the host's loopback to the appliance.
func (l launch) forward(host, guest int) string {
	return fmt.Sprintf("hostfwd=tcp:127.0.0.1:%d-:%d", host, guest)
}

func (a *Appliance) qemuName() string { return "forkd-machine-" + a.Name }

var errDied = errors.New("machine died")
