package diskratio

import (
	"testing"

	"github.com/forkd/forkd/internal/sys/diskbench"
)

func TestMediansAndRatios(t *testing.T) {
	all := []diskbench.Figures{
		{SequentialWriteMiBPerS: 100, SequentialReadMiBPerS: 1, RandomWritesPerS: 7, RandomReadsPerS: 9},
		{SequentialWriteMiBPerS: 300, SequentialReadMiBPerS: 3, RandomWritesPerS: 7, RandomReadsPerS: 1},
		{SequentialWriteMiBPerS: 200, SequentialReadMiBPerS: 2, RandomWritesPerS: 7, RandomReadsPerS: 5},
	}
	m := Median(all)
	if m != (diskbench.Figures{SequentialWriteMiBPerS: 200, SequentialReadMiBPerS: 2, RandomWritesPerS: 7, RandomReadsPerS: 5}) {
		t.Errorf("%+v", m)
	}
	r := Of(m, diskbench.Figures{SequentialWriteMiBPerS: 400, SequentialReadMiBPerS: 1, RandomReadsPerS: 5})
	if r != (Ratio{SequentialWrite: 0.5, SequentialRead: 2, RandomRead: 1}) {
		t.Errorf("%+v", r)
	}
}
