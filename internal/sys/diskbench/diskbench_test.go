package diskbench

import (
	"os"
	"testing"
)

func TestAFileIsMeasuredAndRemoved(t *testing.T) {
	dir := t.TempDir()
	f, err := Run(Config{Dir: dir, MiB: 2, RandomOps: 50})
	if err != nil {
		t.Fatal(err)
	}
	if f.SequentialWriteMiBPerS <= 0 || f.SequentialReadMiBPerS <= 0 || f.RandomWritesPerS <= 0 || f.RandomReadsPerS <= 0 {
		t.Errorf("%+v", f)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, bad := range []Config{{}, {Dir: dir, MiB: 1}, {Dir: dir, MiB: MaxMiB + 1, RandomOps: 1}, {Dir: dir, MiB: 1, RandomOps: -1}, {Dir: dir + "/none", MiB: 1, RandomOps: 1}} {
		if _, err := Run(bad); err == nil {
			t.Errorf("%+v was run", bad)
		}
	}
}
