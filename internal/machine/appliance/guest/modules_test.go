package guest

import (
	"slices"
	"testing"
)

func TestSplitModules(t *testing.T) {
	names := []string{"failover.ko", "net_failover.ko", "virtio_net.ko", "virtio-rng.ko", "irqbypass.ko", "kvm.ko", "kvm-amd.ko", "kvm-intel.ko", "tun.ko"}
	devices, rest := split(names, []string{"fpu", "svm"})
	if want := names[:4]; !slices.Equal(devices, want) {
		t.Errorf("devices are %q", devices)
	}
	if want := []string{"irqbypass.ko", "kvm.ko", "kvm-amd.ko", "tun.ko"}; !slices.Equal(rest, want) {
		t.Errorf("the rest is %q", rest)
	}
	if _, rest := split(names, nil); slices.Contains(rest, "kvm-amd.ko") || slices.Contains(rest, "kvm-intel.ko") {
		t.Errorf("a CPU without virtualisation gets %q", rest)
	}
}

func TestOnlyAMDNeedsNoGuardOfHugePages(t *testing.T) {
	if got := moduleOptions([]string{"fpu", "svm"})["kvm.ko"]; got != "nx_huge_pages=never" {
		t.Errorf("AMD: %q", got)
	}
	if got := moduleOptions([]string{"fpu", "vmx"}); len(got) > 0 {
		t.Errorf("Intel: %q", got)
	}
}

func TestWithin(t *testing.T) {
	for path, want := range map[string]bool{"/var/lib/forkd": true, "/var/lib/forkd/a": true, "/var/lib/forkd2": false, "/": false, "/var": false} {
		if got := within(path, "/var/lib/forkd"); got != want {
			t.Errorf("within(%q) is %v", path, got)
		}
	}
}
