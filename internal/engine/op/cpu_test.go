package op_test

import (
	"reflect"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

func TestASnapshotTellsWhichCPUItNeeds(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	want := &sandbox.CPU{Vendor: "GenuineIntel", Family: 6, Model: 158, Stepping: 10, Features: []string{"avx2"}}
	check := func(s sandbox.SnapshotInfo) {
		t.Helper()
		if !reflect.DeepEqual(s.CPU, want) {
			t.Errorf("the CPU of %s is %+v, want %+v", s.Tag, s.CPU, want)
		}
	}
	check(h.Snapshot(e, "one"))
	sb := h.Fork(e, "one", 1)[0]
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "two", Mode: sandbox.BranchDiff}); err != nil {
		t.Fatal(err)
	}
	two, err := e.SnapshotInfo(t.Context(), "two")
	if err != nil {
		t.Fatal(err)
	}
	check(two)
}
