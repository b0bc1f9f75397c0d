package branchbench

import (
	"bytes"
	"slices"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
)

func TestRow(t *testing.T) {
	s := samples{
		pause: []float64{9, 1, 2, 3}, gap: []float64{4, 4, 8, 4}, idle: []float64{1, 2, 3}, returned: []float64{5}, total: []float64{6},
		after: []float64{1, 2, 40}, bytes: []float64{10, 30, 20}, paused: []float64{1, 3, 2}, rounds: []float64{2},
	}
	for _, ms := range []float64{1, 5, 2} {
		s.steps.Add([]api.ReceiptStep{{Name: "stop", TookMS: ms}, {Name: "scan", TookMS: 2 * ms}})
	}
	r := s.row()
	if want := []measure.Step{{Name: "stop", MS: 2}, {Name: "scan", MS: 4}}; !slices.Equal(r.PauseSteps, want) {
		t.Errorf("steps %v, want %v", r.PauseSteps, want)
	}
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
	f := Plot([]Case{live, small, diff})
	var titles []string
	for _, p := range f.Panels {
		titles = append(titles, p.Title)
	}
	want := []string{"Pause, copying while it runs", "One branch after another", "Pause, diff: all is copied in it", "From its running again to the answer (wait=false)"}
	if !slices.Equal(titles, want) || len(f.Notes) != 3 {
		t.Fatalf("panels %q, notes %q", titles, f.Notes)
	}
	if p := f.Panels[0]; !slices.Equal(p.Ticks, []string{"live, 1536 MiB", "live, 256 MiB"}) || !slices.Equal(p.Series[2].Values, []float64{30, 30}) {
		t.Errorf("%+v", p)
	}
	if p := f.Panels[1]; len(p.Ticks) != 3 || !slices.Equal(p.Series[1].Values, []float64{8, 9}) {
		t.Errorf("%+v", p)
	}
	if p := f.Panels[2]; p.Series[3].Name != "bare memcpy" || p.Series[3].Values[0] != 95 {
		t.Errorf("%+v", p)
	}
	var b bytes.Buffer
	if err := f.SVG(&b); err != nil || b.Len() == 0 {
		t.Errorf("draw: %v", err)
	}
	var none bytes.Buffer
	if err := Plot(nil).SVG(&none); err != nil || none.Len() == 0 {
		t.Errorf("of nothing: %v", err)
	}
}
