package hostproc

import (
	"slices"
	"testing"
)

func TestTheProcessorIsRead(t *testing.T) {
	c, err := parseCPU("processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu avx avx2\n\nprocessor\t: 1\nvendor_id\t: Other\n")
	if err != nil || c.Vendor != "GenuineIntel" {
		t.Fatalf("%+v %v", c, err)
	}
	// KVM emulates x2apic and names some features differently, so they are not missing.
	if got := c.Missing([]string{"avx2", "x2apic", "sse3", "avx512f", "sha_ni"}); !slices.Equal(got, []string{"avx512f", "sha_ni"}) {
		t.Errorf("missing are %q", got)
	}
	if _, err := parseCPU("processor\t: 0\n"); err == nil {
		t.Error("a processor without a vendor is read")
	}
}
