package branchbench

import "testing"

func TestRow(t *testing.T) {
	s := samples{
		pause: []float64{9, 1, 2, 3}, gap: []float64{4, 4, 8, 4}, idle: []float64{1, 2, 3}, returned: []float64{5}, total: []float64{6},
		bytes: []float64{10, 30, 20}, paused: []float64{1, 3, 2}, rounds: []float64{2},
	}
	r := s.row()
	if r.Runs != 4 || r.PauseP50MS != 3 || r.PauseP99MS != 9 || r.PauseFirstMS != 9 || r.PauseLastMS != 3 || r.GuestGapP99MS != 8 ||
		r.BytesWritten != 20 || r.PausedBytes != 2 || r.ReturnP50MS != 5 || r.Rounds != 2 || r.IdleGapMS != 2 {
		t.Errorf("%+v", r)
	}
	if r := (samples{}).row(); r.Runs != 0 || r.PauseP50MS != 0 {
		t.Errorf("of nothing: %+v", r)
	}
}
