package branchbench

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/forkd/forkd/api"
)

var update = flag.Bool("update", false, "rewrite the golden drawing")

func TestRow(t *testing.T) {
	s := samples{
		pause: []float64{9, 1, 2, 3}, gap: []float64{4, 4, 8, 4}, idle: []float64{1, 2, 3}, returned: []float64{5}, total: []float64{6},
		after: []float64{1, 2, 40}, bytes: []float64{10, 30, 20}, paused: []float64{1, 3, 2}, rounds: []float64{2},
	}
	r := s.row()
	if r.Runs != 4 || r.PauseP50MS != 3 || r.PauseP99MS != 9 || r.PauseFirstMS != 9 || r.PauseLastMS != 3 || r.GuestGapP99MS != 8 ||
		r.BytesWritten != 20 || r.PausedBytes != 2 || r.ReturnP50MS != 5 || r.Rounds != 2 || r.IdleGapMS != 2 || r.AfterResumeP50MS != 2 || r.AfterResumeP99MS != 40 {
		t.Errorf("%+v", r)
	}
	if r := (samples{}).row(); r.Runs != 0 || r.PauseP50MS != 0 {
		t.Errorf("of nothing: %+v", r)
	}
}

func TestPlot(t *testing.T) {
	live := Case{Mode: api.BranchLive, SourceMiB: 1536, DirtyMiB: 256, DirtyMiBPerS: 50, Runs: 3, PauseP50MS: 9, PauseP90MS: 12, PauseP99MS: 30, PausesMS: []float64{9, 30, 8}, AfterResumeP50MS: 3, AfterResumeP99MS: 7}
	small := live
	small.SourceMiB, small.DirtyMiB, small.PausesMS = 256, 64, []float64{8, 9}
	diff := Case{Mode: api.BranchDiff, SourceMiB: 1536, PauseP50MS: 200, PauseP90MS: 210, PauseP99MS: 220, FloorMS: 95, PausesMS: []float64{200}}
	var b bytes.Buffer
	if err := Plot([]Case{live, small, diff}).SVG(&b); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/branch.svg"
	if *update {
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(b.Bytes(), want) {
		t.Errorf("the drawing changed: look at it, and run with -update (%v)", err)
	}
	var none bytes.Buffer
	if err := Plot(nil).SVG(&none); err != nil || none.Len() == 0 {
		t.Errorf("of nothing: %v", err)
	}
}
