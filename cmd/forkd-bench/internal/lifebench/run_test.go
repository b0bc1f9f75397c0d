package lifebench

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure/measuretest"
)

func TestACycleIsMeasured(t *testing.T) {
	d := measuretest.Start(t)
	f, err := Run(t.Context(), Config{Client: d.Client, Tag: "py", Rounds: 2, DirtyMiB: 1})
	if err != nil {
		t.Fatal(err)
	}
	if f.Pause.Pairs != 2 || f.Resume.Pairs != 2 || f.Pause.Ratio <= 0 || len(f.PauseMS) != 2 || f.ResumeP90 <= 0 ||
		len(f.PauseSteps) == 0 {
		t.Errorf("%+v", f)
	}
	d.Empty("after all")
}

func TestHoweverItEndsNothingIsLeft(t *testing.T) {
	measuretest.InterruptEach(t, func(ctx context.Context, d *measuretest.Daemon) error {
		_, err := Run(ctx, Config{Client: d.Client, Tag: "py", Rounds: 1, DirtyMiB: 1})
		return err
	})
}

func TestAFigureOfAPageOfMetrics(t *testing.T) {
	const page = "# TYPE a gauge\na 5\nab 7\na_b{x=\"y\"} 1\nc 1.5e+06\n"
	for name, want := range map[string]float64{"a": 5, "ab": 7, "c": 1.5e6, "d": 0} {
		if got := metric(page, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

func TestRecordsOfPausedSandboxes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "paused")
	if err := record(dir, 3); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "sb-00000002-0001.json"))
	var got struct {
		Version int
		Info    struct{ ID, Status, PausedIn string }
	}
	if err == nil {
		err = json.Unmarshal(b, &got)
	}
	if err != nil || got.Version != 1 || got.Info.ID != "sb-00000002-0001" || got.Info.Status != "paused" || got.Info.PausedIn == "" {
		t.Errorf("%+v, %v", got, err)
	}
}
