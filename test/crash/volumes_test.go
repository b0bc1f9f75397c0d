package crash

import (
	"context"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

const (
	moved    = "moved"
	movePath = "/data"
)

// withVolume forks a sandbox with the volume, in this mode.
func withVolume(ctx context.Context, c *client.Client, mode api.VolumeMode) (string, error) {
	n := 1
	res, err := c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n,
		Volumes: []api.VolumeMount{{Name: moved, Path: movePath, Mode: mode}}})
	if err != nil {
		return "", err
	}
	return res.Sandboxes[0].ID, nil
}

// TestKillsDuringAMove kills the daemon while a volume moves from a paused sandbox to the child of a fork. The volume is
// then in one of both or free, never lost, and the paused sandbox has the content of its pause.
func TestKillsDuringAMove(t *testing.T) {
	kvmtest.Drawn(t)
	w := newWorld(t)
	for _, s := range []failpoint.Step{failpoint.VolumePrefix + "move", failpoint.ForkRestored, failpoint.ForkConfirmed,
		failpoint.ForkRecorded} {
		w.sub(string(s), func() { w.killDuringMove(s) })
	}
}

func (w *world) killDuringMove(s failpoint.Step) {
	ctx := w.t.Context()
	if _, err := w.d.Client.Volumes().Create(ctx, api.CreateVolumeRequest{Name: moved, SizeMiB: 64}); err != nil {
		w.t.Fatal(err)
	}
	first, err := withVolume(ctx, w.d.Client, "")
	if err != nil {
		w.t.Fatal(err)
	}
	w.sh(first, "echo kept > /data/file")
	if _, err := (client.Life{Client: w.d.Client}).Pause(ctx, first, api.PauseRequest{}); err != nil {
		w.t.Fatal(err)
	}
	w.arm(s)
	end := make(chan error, 1)
	go func() {
		_, err := withVolume(context.Background(), w.d.Client, api.VolumeMove)
		end <- err
	}()
	w.reached(s)
	w.d.End(syscall.SIGKILL)
	if err := <-end; err == nil {
		w.t.Error("the caller was told of success before the step")
	}
	w.disarm(s)
	w.start()

	v, err := w.d.Client.Volumes().Get(ctx, moved)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Logf("the volume is in %q", v.Sandbox)
	if v.Sandbox == first {
		w.t.Error("the paused sandbox has the volume again")
	}
	if made := s == failpoint.ForkRecorded; made != (v.Sandbox != "") {
		w.t.Errorf("the volume is in %q", v.Sandbox)
	}
	resumed, err := client.Life{Client: w.d.Client}.Resume(ctx, first)
	if err != nil || len(resumed.Volumes) != 1 || resumed.Volumes[0].Mode != api.VolumeClone {
		w.t.Fatalf("the paused sandbox resumes as %+v, %v", resumed, err)
	}
	if got := w.sh(first, "cat /data/file; echo clone > /data/file; sync"); got != "kept\n" {
		w.t.Errorf("the resumed sandbox has %q", got)
	}
	next := v.Sandbox
	if next == "" {
		if next, err = withVolume(ctx, w.d.Client, ""); err != nil {
			w.t.Fatal(err)
		}
	}
	if got := w.sh(next, "cat /data/file"); got != "kept\n" {
		w.t.Errorf("the volume has %q", got)
	}
	w.clean()
	if err := w.d.Client.Volumes().Remove(ctx, moved); err != nil {
		w.t.Error(err)
	}
	w.nothingLeft()
}
