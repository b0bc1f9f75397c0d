package forkbench

import "testing"

func TestSummaryIsOfMediansAndTheWorstRound(t *testing.T) {
	f := summarise([]round{
		{n: 10, ok: 10, pool: 10, floor: 100, armed: 300, ready: []float64{1, 2, 3}, eval: []float64{5, 6, 7}, evalDaemon: []float64{1, 2, 3}},
		{n: 10, ok: 9, pool: 8, floor: 100, armed: 100, ready: []float64{2, 3, 4}, eval: []float64{4, 5, 6}, evalDaemon: []float64{2, 3, 4}},
		{n: 10, ok: 10, pool: 10, floor: 50, armed: 100, ready: []float64{9, 9, 90}, eval: []float64{9, 9, 9}, evalDaemon: []float64{8, 8, 8}},
	})
	if f.OK != 9 || f.Pool != 8 || f.ArmedWallMS != 100 || f.FloorWallMS != 100 || f.Ratio != 2 || f.ReadyP50MS != 3 || f.ReadyP99MS != 4 ||
		f.EvalP50MS != 6 || f.EvalDaemonP50MS != 3 {
		t.Fatalf("got %+v", f)
	}
	if empty := summarise([]round{{n: 1, floor: 1}}); empty.ReadyP99MS != 0 {
		t.Fatalf("no child answered, yet %+v", empty)
	}
}
