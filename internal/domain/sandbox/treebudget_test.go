package sandbox_test

import (
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

func TestATreesBudgetIsGivenOutByForks(t *testing.T) {
	budget := sandbox.Limits{DiskMiB: 16, Tree: sandbox.TreeBudget{PIDs: 4 * 13, DiskMiB: 100}}
	for _, c := range []struct {
		name  string
		now   sandbox.Committed
		n     int
		fits  bool
		vcpus int
	}{
		{"the first fork", sandbox.Committed{TreeUsage: sandbox.TreeUsage{Size: 1}}, 3, true, 1},
		{"too many threads", sandbox.Committed{TreeUsage: sandbox.TreeUsage{Size: 1}}, 4, false, 1},
		{"more vCPUs", sandbox.Committed{TreeUsage: sandbox.TreeUsage{Size: 1}}, 3, false, 2},
		{"layers of earlier forks", sandbox.Committed{TreeUsage: sandbox.TreeUsage{Size: 2}, LayersMiB: 20}, 2, true, 1},
		{"too much disk in layers", sandbox.Committed{TreeUsage: sandbox.TreeUsage{Size: 2}, LayersMiB: 21}, 2, false, 1},
		{"another fork under way", sandbox.Committed{TreeUsage: sandbox.TreeUsage{Size: 2}, LayersMiB: 20, Forks: 1}, 2, false, 1},
	} {
		if err := budget.Room(c.now, c.n, c.vcpus); (err == nil) != c.fits {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := (sandbox.Limits{}).Room(sandbox.Committed{TreeUsage: sandbox.TreeUsage{Size: 1 << 20}}, 1000, 8); err != nil {
		t.Errorf("without a budget: %v", err)
	}
	for _, bad := range []sandbox.Limits{
		{Tree: sandbox.TreeBudget{PIDs: 1}}, {Tree: sandbox.TreeBudget{DiskMiB: 64}},
		{DiskMiB: 64, Tree: sandbox.TreeBudget{DiskMiB: 32}}, {Tree: sandbox.TreeBudget{PIDs: -1}},
	} {
		if err := bad.Check(true); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
