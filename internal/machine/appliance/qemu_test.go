package appliance

import (
	"slices"
	"strings"
	"testing"
)

func TestArguments(t *testing.T) {
	l := launch{name: "forkd-machine-x", accel: accelTCG, spec: Spec{CPUs: 2, MemoryMiB: 2048}, apiPort: 1001, agentPort: 1002}
	args := l.args()
	value := func(flag string) string {
		i := slices.Index(args, flag)
		if i < 0 || i+1 == len(args) {
			t.Fatalf("no %s in %q", flag, args)
		}
		return args[i+1]
	}
	for flag, want := range map[string]string{"-accel": "tcg", "-smp": "3", "-m": "2048", "-cpu": tcgCPU, "-name": "forkd-machine-x"} {
		if got := value(flag); got != want {
			t.Errorf("%s is %q, want %q", flag, got, want)
		}
	}
	// The ports require the token, and are not reachable from other hosts.
	forwards := strings.Count(value("-netdev"), "hostfwd=")
	if loopbacks := strings.Count(value("-netdev"), "hostfwd=tcp:127.0.0.1:"); forwards != 2 || loopbacks != 2 {
		t.Errorf("forwards %d ports, %d of them on the loopback, in %q", forwards, loopbacks, value("-netdev"))
	}
	// Every file is relative to the machine's directory.
	for _, a := range args {
		if a != value("-append") && (strings.Contains(a, "=/") || strings.HasPrefix(a, "/")) {
			t.Errorf("%q names an absolute path", a)
		}
	}
	if got := value("-append"); !strings.HasSuffix(got, " -- machine-init") || !strings.Contains(got, "mitigations=off") {
		t.Errorf("kernel command line is %q", got)
	}
}

func TestNetwork(t *testing.T) {
	l := launch{accel: accelTCG, spec: Spec{CPUs: 2, MemoryMiB: 1024}, apiPort: 1001, agentPort: 1002}
	const ports = "hostfwd=tcp:127.0.0.1:1001-:8889,hostfwd=tcp:127.0.0.1:1002-:1024"
	if got, want := l.network(), "user,id=net0,ipv6=off,"+ports; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	l.ipv6 = true
	if got, want := l.network(), "user,id=net0,ipv4=on,ipv6=on,ipv6-net=fd66:6f72:6b6d::/64,"+ports; got != want {
		t.Errorf("a host with IPv6: got %q, want %q", got, want)
	}
	if args := l.args(); !slices.Contains(args, l.network()) || !slices.Contains(args, "virtio-net-pci,netdev=net0,romfile=") {
		t.Errorf("there is no device for it in %q", args)
	}
}

func TestInterruptControllersByMSRs(t *testing.T) {
	for _, c := range []struct {
		qemu  version
		accel string
		want  bool
	}{{version{10, 0}, accelTCG, true}, {version{9, 2}, accelTCG, false}, {version{10, 0}, accelKVM, false}} {
		if got := hasX2APIC(c.qemu, c.accel); got != c.want {
			t.Errorf("QEMU %s with %s: %v", c.qemu, c.accel, got)
		}
	}
	l := launch{accel: accelTCG, x2apic: true, spec: Spec{CPUs: 2, MemoryMiB: 1024}}
	args := l.args()
	if i := slices.Index(args, "-device"); args[i+1] != "intel-iommu,intremap=on,eim=on" {
		t.Errorf("the first device is %s", args[i+1])
	}
	if got := l.kernelCommandLine(); !strings.Contains(got, " intel_iommu=off ") {
		t.Errorf("kernel command line is %q", got)
	}
}

func TestHardwareKeepsMitigations(t *testing.T) {
	l := launch{accel: accelKVM, spec: Spec{CPUs: 1, MemoryMiB: 1024}}
	if got := l.kernelCommandLine(); strings.Contains(got, "mitigations=off") {
		t.Errorf("kernel command line is %q", got)
	}
	if !slices.Contains(l.args(), "host") {
		t.Errorf("the CPU is not the host's: %q", l.args())
	}
}

func TestSpecDefaults(t *testing.T) {
	earlier := Spec{CPUs: 3, MemoryMiB: 3000, DiskGiB: 30}
	if got := (Spec{MemoryMiB: 4000}).withDefaults(earlier); got != (Spec{3, 4000, 30}) {
		t.Errorf("what is not asked for stays as it was: %+v", got)
	}
	if got := (Spec{}).withDefaults(Spec{}); got.validate() != nil {
		t.Errorf("defaults are invalid: %+v, %v", got, got.validate())
	}
	for host, want := range map[int]int{0: minMemoryMiB, 4096: 2048, 64 << 10: maxDefaultMemory} {
		if got := defaultMemory(host); got != want {
			t.Errorf("host with %d MiB: %d, want %d", host, got, want)
		}
	}
	for _, bad := range []Spec{{0, 1024, 1}, {1, 10, 1}, {1, 1024, 0}, {1000, 1024, 1}} {
		if bad.validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestFreePortsAreKeptWhileTheyAreFree(t *testing.T) {
	a, b, err := pickPorts(0, 0)
	if err != nil || a == b || a == 0 || b == 0 {
		t.Fatalf("got %d and %d, %v", a, b, err)
	}
	a2, b2, err := pickPorts(a, a) // the second port is taken by the first
	if err != nil || a2 == b2 {
		t.Errorf("got %d and %d, %v", a2, b2, err)
	}
}
