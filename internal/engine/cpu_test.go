package engine

import (
	"reflect"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/vm/cpuid"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/vmstate"
)

// fakeState returns the state of a fake VM, which has only its CPU.
func fakeState() string {
	var w vmstate.Writer
	w.Add(cpuid.Section, cpuid.Version, cpuid.Encode([]kvm.CPUIDEntry{
		{Function: 0, EBX: 0x756e6547, EDX: 0x49656e69, ECX: 0x6c65746e}, {Function: 1, EAX: 0x000906ea}, {Function: 7, EBX: 1 << 5},
	}))
	return string(w.Bytes())
}

func TestASnapshotTellsWhichCPUItNeeds(t *testing.T) {
	h := newHost(t)
	e := h.open()
	want := &sandbox.CPU{Vendor: "GenuineIntel", Family: 6, Model: 158, Stepping: 10, Features: []string{"avx2"}}
	check := func(s sandbox.SnapshotInfo) {
		t.Helper()
		if !reflect.DeepEqual(s.CPU, want) {
			t.Errorf("the CPU of %s is %+v, want %+v", s.Tag, s.CPU, want)
		}
	}
	check(h.snapshot(e, "one"))
	sb := h.fork(e, "one", 1)[0]
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "two", Mode: sandbox.BranchDiff}); err != nil {
		t.Fatal(err)
	}
	two, err := e.SnapshotInfo(t.Context(), "two")
	if err != nil {
		t.Fatal(err)
	}
	check(two)
}
