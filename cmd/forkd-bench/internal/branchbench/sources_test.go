package branchbench

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure/measuretest"
)

// bench makes its sources, branches and removes them, as the command does.
func bench(ctx context.Context, d *measuretest.Daemon) (err error) {
	defer finish(d)()
	sources := Sources{Client: d.Client, Image: "python-numpy", Create: func(ctx context.Context, req api.CreateSnapshotRequest) (api.SnapshotInfo, error) {
		return d.Client.CreateSnapshot(ctx, req, nil)
	}}
	defer func() { err = errors.Join(err, sources.Remove(ctx)) }()
	tags, err := sources.Make(ctx, []int{512, 256})
	if err != nil {
		return err
	}
	_, err = Run(ctx, Config{Client: d.Client, Floors: measuretest.Floors(), Tags: tags, Modes: []api.BranchMode{api.BranchLive}, Runs: []int{2}, DirtyMiB: 1, RateMiB: 1})
	return err
}

// finish completes the fake engine's branches some time after they began. The fake does not
// complete them without it.
func finish(d *measuretest.Daemon) (stop func()) {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-time.After(time.Second):
				d.Engine.FinishAll()
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

func TestHoweverItEndsNothingIsLeft(t *testing.T) {
	measuretest.InterruptEach(t, bench)
}

// A killed run could not clean up. The next run does.
func TestTheNextRunSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := measuretest.Start(t)
		no, one := false, 1
		fork := func(tag string) string {
			res, err := d.Client.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: tag, N: &one})
			if err != nil {
				t.Fatal(err)
			}
			return res.OK()[0].ID
		}
		if _, err := d.Client.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: sourceTag(256), Image: "python-numpy"}, nil); err != nil {
			t.Fatal(err)
		}
		fork(sourceTag(256))
		for _, tag := range []string{"py", sourceTag(256)} {
			id := fork(tag)
			if _, err := d.Client.Branch(t.Context(), id, api.BranchRequest{Tag: branchTag(id, 1), Wait: &no}); err != nil {
				t.Fatal(err)
			}
		}
		d.Engine.FinishAll()
		told := 0
		if err := Sweep(t.Context(), d.Client, nil, func(string) { told++ }); err != nil || told != 6 {
			t.Errorf("it told of %d, %v", told, err)
		}
		d.Empty()
	})
}

// Sweep leaves snapshots with a similar name, snapshots in other use, and tags named by the caller.
func TestTheNextRunSweepsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := measuretest.Start(t)
		for _, tag := range []string{"bench-branch-", "bench-branch-mine", "bench-branch-256-old", "my-bench-branch-256", sourceTag(512)} {
			if _, err := d.Client.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: tag, Image: "python-numpy"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, tag := range []string{"py", sourceTag(512)} {
			if _, err := d.Client.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: tag}); err != nil {
				t.Fatal(err)
			}
		}
		if err := Sweep(t.Context(), d.Client, []string{sourceTag(512)}, func(s string) { t.Error(s) }); err != nil {
			t.Error(err)
		}
	})
}
