package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// derive makes a snapshot on top of another. It is deleted at the end of the test, like the
// snapshots on top of it.
func (d *daemon) derive(req api.CreateSnapshotRequest) (info api.SnapshotInfo, said string) {
	d.t.Helper()
	t := d.t
	d.forget(req.Tag)
	info, err := d.c.CreateSnapshot(t.Context(), req, func(s api.Step) {
		if said += s.Output; s.Done {
			t.Logf("%s: %s took %.0f ms, %d bytes", req.Tag, s.Step, s.TookMS, s.Bytes)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return info, said
}

// forget deletes a snapshot at the end of the test.
func (d *daemon) forget(tag string) {
	t := d.t
	t.Cleanup(func() {
		if err := d.c.DeleteSnapshot(context.Background(), tag, client.DeleteOptions{Cascade: true}); err != nil && !client.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// A chain is built by running programs on top of snapshots. Children of the last snapshot have the
// results of all programs in memory and on disk.
func TestAChainOfSnapshots(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	d.unchanged()
	d.forget("c1")
	code, out, errs := d.cli("snapshot", "create", "--from", parentTag, "--exec", "echo one > /home/user/one; echo said", "--tag", "c1")
	if code != 0 || out != "c1\n" || !strings.Contains(errs, "said\n") || !strings.Contains(errs, "capture: ") {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
	// A program in the background is still in the snapshot when the foreground program ends.
	const sleeper = "sleep 4711 >/dev/null 2>&1 & until grep -q sleep /proc/$!/comm; do sleep 0.1; done"
	info, said := d.derive(api.CreateSnapshotRequest{
		Tag: "c2", From: "c1", Exec: []string{"sh", "-c", "cat /home/user/one; id -un; " + sleeper}, ExecUser: "root", Warm: "colour = 'red'",
	})
	if said != "one\nroot\n" || info.ParentTag == nil || *info.ParentTag != "c1" || info.Status != api.SnapshotReady {
		t.Errorf("it said %q; %+v", said, info)
	}
	detail, err := d.c.Snapshot(t.Context(), "c2")
	if err != nil || !slices.Equal(detail.Ancestors, []string{parentTag, "c1"}) {
		t.Errorf("ancestors %q, %v", detail.Ancestors, err)
	}
	child := d.forkOf("c2", 1)[0].ID
	if got := d.eval(child, "colour"); got != "'red'" {
		t.Errorf("its interpreter has %s", got)
	}
	if got := d.sh(child, "cat /home/user/one; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 4711'"); got != "one\n1" {
		t.Errorf("it has %q", got)
	}
}

// A failing program leaves no snapshot, and the error has its output.
func TestAProgramThatFailsMakesNoSnapshot(t *testing.T) {
	d := shared(t)
	d.unchanged()
	code, out, errs := d.cli("snapshot", "create", "--from", parentTag, "--exec", "echo broken >&2; exit 3", "--tag", "c3")
	if code != 2 || out != "" || !strings.Contains(errs, "exit status 3; the output's last lines:\nbroken") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
	_, err := d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "c3", From: parentTag, Exec: []string{"sleep", "100"}, ExecTimeoutSecs: 0.5}, nil)
	wantError(t, err, api.CodeTimeout, "sleep timed out after 500ms")
	_, err = d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "c3", From: parentTag, Warm: "1 / 0"}, nil)
	wantError(t, err, api.CodeInvalid, "ZeroDivisionError")
}
