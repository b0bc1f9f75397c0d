package floor

import (
	"testing"

	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/internal/vm/kvm"
)

func TestFloorMakesVMs(t *testing.T) {
	kvmtest.Require(t)
	sys, err := kvm.Open("/dev/kvm")
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close()
	took, err := VMs(VMsConfig{KVM: sys, N: 100, MemoryBytes: 512 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("100 VMs in %v", took)
}
