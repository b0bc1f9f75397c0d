//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/demo"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

// demoTag and demoRecipe name the demo's snapshot and image. Both stay for the user.
const (
	demoTag    = "pyagent"
	demoRecipe = "python-numpy"
)

func newDemoCommand(a *app) *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Build, boot and fork an example, with proof and times",
		Long: "Build the image python-numpy, boot it, warm it up, save it as snapshot pyagent, and fork N\n" +
			"children. Existing images and snapshots are reused. Each child proves that it has the parent's\n" +
			"heap, and its own randomness and variables.\n\n" +
			"Then branch one child during a computation into three children with different results, and allow\n" +
			"it to fetch one page from this host.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 0 || n > 1000 {
				return exit.UsageError{Err: fmt.Errorf("--count is %d, want 0 to 1000", n)}
			}
			return (&demonstration{app: a, n: n}).run(cmd.Context())
		},
	}
	cmd.Flags().IntVarP(&n, "count", "n", 100, "fork `N` children, at most 1000; 0: make image and snapshot only")
	return cmd
}

// demoReport is the result of `forkd demo --json`.
type demoReport struct {
	Where     string      `json:"where"`
	CPUs      int         `json:"cpus,omitempty"` // 0: not known
	Snapshot  api.Timings `json:"snapshot_ms"`
	TotalSecs float64     `json:"total_s"`
	demo.Result
}

// demonstration is one run of the demo.
type demonstration struct {
	app *app
	c   *client.Client
	n   int // children
}

func (d *demonstration) run(ctx context.Context) error {
	began := time.Now()
	c, where, err := d.app.daemon(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	d.c = c
	built, err := d.app.buildImage(ctx, demoRecipe)
	if err != nil {
		return err
	}
	img, err := d.app.pushImage(ctx, c, built)
	if err != nil {
		return err
	}
	snap, err := d.snapshot(ctx, img)
	if err != nil {
		return err
	}
	if d.n == 0 {
		return nil
	}
	drain := func() { c.SetPool(context.WithoutCancel(ctx), demoTag, 0) }
	defer drain() // also if it is interrupted while shells are made
	if err := d.fillPool(ctx); err != nil {
		return err
	}
	res, err := demo.Run(ctx, c, demo.Config{Tag: demoTag, N: d.n, Reach: where.Where == endpoint.Machine,
		Forked: drain, Say: func(s string) { d.app.Note("%s ...", s) }})
	if err != nil {
		return err
	}
	report := demoReport{Where: string(where.Where), CPUs: where.CPUs, Snapshot: snap.Timings,
		TotalSecs: time.Since(began).Seconds(), Result: res}
	if err := d.print(report); err != nil {
		return err
	}
	if len(res.Failures) > 0 || res.Children < d.n {
		return errors.New("the demo failed: " + strings.Join(res.Failures, "; "))
	}
	return nil
}

// snapshot makes the snapshot, or uses an existing one of the same image.
func (d *demonstration) snapshot(ctx context.Context, img api.Image) (api.SnapshotInfo, error) {
	old, err := d.c.Snapshot(ctx, demoTag)
	switch {
	case err == nil && old.ImageDigest == img.Digest && old.Status == api.SnapshotReady:
		d.app.Note("snapshot %s is there already", demoTag)
		return old.SnapshotInfo, nil
	// in an older version's format, or damaged: it cannot be used
	case err == nil && old.Status == api.SnapshotFailed:
		why := "it failed"
		if old.Warning != nil {
			why = *old.Warning
		}
		d.app.Note("snapshot %s is recreated: %s", demoTag, why)
		if err := d.c.DeleteSnapshot(ctx, demoTag, client.DeleteOptions{}); err != nil {
			return api.SnapshotInfo{}, err
		}
	case err == nil && old.Image != demoRecipe:
		return api.SnapshotInfo{},
			fmt.Errorf("snapshot %s is there and not of image %s: delete it (forkd snapshot rm %s), or rename yours",
				demoTag, demoRecipe, demoTag)
	case err == nil:
		d.app.Note("snapshot %s is of an older image, and is recreated", demoTag)
		if err := d.c.DeleteSnapshot(ctx, demoTag, client.DeleteOptions{}); err != nil {
			return api.SnapshotInfo{}, err
		}
	case !client.IsNotFound(err):
		return api.SnapshotInfo{}, err
	}
	return d.app.createSnapshot(ctx, d.c, api.CreateSnapshotRequest{Tag: demoTag, Image: img.Name, Warm: demo.Warm})
}

// fillPool waits until a shell (pre-created VMM) for each child is ready.
func (d *demonstration) fillPool(ctx context.Context) error {
	if err := d.c.SetPool(ctx, demoTag, d.n); err != nil {
		return err
	}
	p := d.app.Progress()
	defer p.End()
	const step = "shells"
	for {
		pools, err := d.c.Pools(ctx)
		if err != nil {
			return err
		}
		ready := 0
		for _, pool := range pools {
			if pool.Tag == demoTag {
				ready = pool.Ready
			}
		}
		if ready >= d.n {
			p.Done(step, fmt.Sprint(ready))
			return nil
		}
		p.Step(step, float64(ready)/float64(d.n))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (d *demonstration) print(r demoReport) error {
	if d.app.JSON {
		return d.app.Value(r)
	}
	verdict := "each has the parent's heap, randomness and variables of its own"
	if len(r.Failures) > 0 {
		verdict = fmt.Sprintf("%d FAILURES", len(r.Failures))
	}
	place := r.Where
	if r.CPUs > 0 {
		place = fmt.Sprintf("%s, %d CPUs", r.Where, r.CPUs)
	}
	branched := "no"
	if b := r.Branch; b != nil {
		branched = fmt.Sprintf("into %d that went on and apart; paused for %s, %d of %d KiB copied in it",
			b.Ways, ui.Millis(b.PauseMS), b.PausedBytes>>10, b.Bytes>>10)
	}
	network := "not shown: this daemon opens no ports of its host (forkd serve --net-host-port)"
	if w := r.Network; w != nil {
		network = fmt.Sprintf("a page of this host in %s; not another: %s", ui.Millis(w.FetchMS), w.Refused)
	}
	return d.app.Facts(
		"parent: boot", ui.Millis(r.Snapshot["boot"]),
		"parent: warm-up", ui.Millis(r.Snapshot["warm"]),
		"parent: snapshot", ui.Millis(r.Snapshot["quiesce"]+r.Snapshot["save"]),
		"children", fmt.Sprintf("%d of %d, from %d shells", r.Children, d.n, r.Pool),
		"all armed after", ui.Millis(r.ArmedWallMS),
		"all ready after", ui.Millis(r.ForkWallMS),
		"first answer, p50", ui.Millis(r.AnswerP50MS),
		"first answer, p99", ui.Millis(r.AnswerP99MS),
		"memory per child", fmt.Sprintf("%d KiB of its own, %d KiB VMM", r.GuestDirtyKiB, r.VMMAnonKiB),
		"all ended in", ui.Millis(r.KillWallMS),
		"branched live", branched,
		"network", network,
		"checked", verdict,
		"where", place,
		"in all", ui.Millis(r.TotalSecs*1000),
	)
}
