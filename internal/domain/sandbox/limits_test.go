package sandbox_test

import (
	"errors"
	"math"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

func TestANetworkLimitIsTheLowerOfItsAndThePolicys(t *testing.T) {
	public := netpolicy.Spec{Default: netpolicy.Public}
	slow := public
	slow.Limits.BytesPerSecond = 4096
	for _, c := range []struct {
		spec netpolicy.Spec
		mib  int
		want int64
	}{{public, 0, 0}, {public, 3, 3 << 20}, {slow, 3, 4096}, {slow, 0, 4096}, {netpolicy.Spec{}, 3, 0}} {
		if got := (sandbox.Limits{NetMiB: c.mib}).OfNetwork(c.spec).Limits.BytesPerSecond; got != c.want {
			t.Errorf("%d MiB/s of %+v: %d bytes/s, want %d", c.mib, c.spec, got, c.want)
		}
	}
	for _, mib := range []int{-1, sandbox.MaxNetMiB + 1} {
		if err := (sandbox.Limits{Tree: sandbox.TreeBudget{NetMiB: mib}}).Check(true); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%d MiB/s of a tree: %v", mib, err)
		}
		if err := (sandbox.Limits{NetMiB: mib}).Check(false); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%d MiB/s: %v", mib, err)
		}
	}
}

func TestATreesNetworkIsItsRoots(t *testing.T) {
	l := sandbox.Limits{Tree: sandbox.TreeBudget{NetMiB: 3}}
	root := sandbox.Kin{MayFork: true}
	for id, k := range map[string]sandbox.Kin{"root": root, "child": root.Child("root", "token")} {
		if got, want := l.NetTree(id, k), (sandbox.NetTree{Root: "root", BytesPerSecond: 3 << 20}); got != want {
			t.Errorf("%s has %+v", id, got)
		}
	}
	if got := (sandbox.Limits{NetMiB: 3}).NetTree("root", root); got != (sandbox.NetTree{}) {
		t.Errorf("without a limit: %+v", got)
	}
	if err := l.Check(false); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("without guest_fork: %v", err)
	}
}

// Each number has a maximum, so that its value in bytes, and a sum of many, fits into an int64.
func TestLimitsHaveAnEnd(t *testing.T) {
	const far = 1 << 44 // MiB; in bytes it would overflow to 0
	for name, l := range map[string]sandbox.Limits{
		"memory":         {MemoryMiB: far},
		"tree's memory":  {Tree: sandbox.TreeBudget{MemoryMiB: far}},
		"CPUs":           {CPUs: math.Inf(1)},
		"tree's CPUs":    {Tree: sandbox.TreeBudget{CPUs: 1e300}},
		"disk":           {DiskMiB: far},
		"tree's disk":    {DiskMiB: 16, Tree: sandbox.TreeBudget{DiskMiB: far}},
		"reads":          {DiskReadMiB: far},
		"writes":         {DiskWriteMiB: far},
		"tree's threads": {Tree: sandbox.TreeBudget{PIDs: math.MaxInt}},
	} {
		if err := l.Check(true); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
