package e2e

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// volume makes a volume, which is removed at the end of the test.
func (d *daemon) volume(req api.CreateVolumeRequest) api.Volume {
	d.t.Helper()
	v, err := d.c.Volumes().Create(d.t.Context(), req)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := d.c.Volumes().Remove(context.Background(), req.Name); err != nil && !client.IsNotFound(err) {
			d.t.Error(err)
		}
	})
	return v
}

func mounted(name, path string, mode api.VolumeMode) []api.VolumeMount {
	return []api.VolumeMount{{Name: name, Path: path, Mode: mode}}
}

// with forks n children with volumes.
func (d *daemon) with(n int, volumes []api.VolumeMount) []api.SandboxInfo {
	d.t.Helper()
	res := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n, Volumes: volumes})
	for _, sb := range res.Failed() {
		d.t.Fatalf("child %d: %s", sb.Index, sb.Error)
	}
	return res.OK()
}

// refuses checks that a fork is refused with a reason.
func (d *daemon) refusesFork(n int, volumes []api.VolumeMount, code api.Code, reason api.Reason) {
	d.t.Helper()
	_, err := d.c.Fork(d.t.Context(), api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n, Volumes: volumes})
	if got := failure(err); got.Code != code || got.Reason != reason {
		d.t.Errorf("%+v: got %v (%s), want %s %s", volumes, err, got.Reason, code, reason)
	}
}

func failure(err error) client.Error {
	var e *client.Error
	if errors.As(err, &e) {
		return *e
	}
	return client.Error{}
}

// TestVolumeOutlivesItsSandbox writes to a volume in one sandbox and reads it in the next ones.
func TestVolumeOutlivesItsSandbox(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	d.unchanged()
	d.volume(api.CreateVolumeRequest{Name: "data", SizeMiB: 2048})
	first := d.with(1, mounted("data", "/data/deep", ""))[0].ID
	if got := d.sh(first, "df -m /data/deep | tail -1 | awk '{print ($2 > 1900)}'; stat -c %a /data/deep; ls -A /data/deep"); got != "1\n1777" {
		t.Errorf("a new volume: %q", got)
	}
	if got := d.sh(first, "grep /data/deep /proc/mounts"); !strings.Contains(got, "nosuid") || !strings.Contains(got, "nodev") {
		t.Errorf("mounted as %q", got)
	}
	d.sh(first, "echo kept > /data/deep/file") // no sync: the end of the sandbox flushes
	d.refusesFork(1, mounted("data", "/data", ""), api.CodeConflict, api.ReasonVolumeHeld)
	d.refusesFork(1, mounted("data", "/data", api.VolumeClone), api.CodeConflict, api.ReasonVolumeHeld)
	if err := d.c.Volumes().Remove(t.Context(), "data"); failure(err).Reason != api.ReasonVolumeHeld {
		t.Errorf("a volume in use was removed: %v", err)
	}
	d.kill(first)
	d.refusesFork(2, mounted("data", "/data", ""), api.CodeInvalid, api.ReasonVolumePrivate)
	second := d.with(1, mounted("data", "/other", ""))[0].ID
	if got := d.sh(second, "cat /other/file"); got != "kept" {
		t.Errorf("the next sandbox reads %q", got)
	}
	d.kill(second)

	readers := d.with(2, mounted("data", "/data", api.VolumeShareRO))
	for _, sb := range readers {
		if got := d.sh(sb.ID, "cat /data/file; touch /data/x 2>&1 | grep -c Read-only"); got != "kept\n1" {
			t.Errorf("a reader has %q", got)
		}
	}
	writers := d.with(2, mounted("data", "/data", api.VolumeClone))
	for _, sb := range writers {
		d.sh(sb.ID, "cat /data/file && echo "+sb.ID+" > /data/file && sync")
	}
	for _, sb := range writers {
		if got := d.sh(sb.ID, "cat /data/file"); got != sb.ID {
			t.Errorf("a clone of %s has %q", sb.ID, got)
		}
	}
	third := d.with(1, mounted("data", "/data", ""))[0].ID
	if got := d.sh(third, "cat /data/file"); got != "kept" {
		t.Errorf("the clones have changed the volume: %q", got)
	}
	d.kill(third)
	for _, path := range []string{"data", "/data/../etc", "/", "/usr", "/proc/x", "/data/"} {
		d.refusesFork(1, mounted("data", path, ""), api.CodeInvalid, api.ReasonVolumePath)
	}
	d.refusesFork(1, mounted("none", "/data", ""), api.CodeNotFound, api.ReasonVolumeNotFound)
	d.refusesFork(1, mounted("data", "/data", "steal"), api.CodeInvalid, api.ReasonVolumeMode)
}

// TestVolumesOfABranch checks what each copy of a sandbox gets of its volume.
func TestVolumesOfABranch(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	d.unchanged()
	d.volume(api.CreateVolumeRequest{Name: "branched", SizeMiB: 256})
	id := d.with(1, mounted("branched", "/data", ""))[0].ID
	d.sh(id, "echo before > /data/file") // unwritten data is in the guest's memory, which the child gets, too
	n := 2
	children := d.branch(id, api.BranchRequest{Tag: "with-volume", N: n}).Children
	d.sh(id, "echo after > /data/file; sync")
	for _, c := range children {
		if got := d.sh(c.ID, "cat /data/file; echo "+c.ID+" > /data/file; sync; cat /data/file"); got != "before\n"+c.ID {
			t.Errorf("a child has %q", got)
		}
		if len(c.Volumes) != 1 || c.Volumes[0].Mode != api.VolumeClone {
			t.Errorf("a child's volumes are %+v", c.Volumes)
		}
	}
	if got := d.sh(id, "cat /data/file"); got != "after" {
		t.Errorf("the branched sandbox has %q", got)
	}
	grandchild := d.branch(children[0].ID, api.BranchRequest{Tag: "with-clone", N: 1}).Children[0].ID
	if got := d.sh(grandchild, "cat /data/file"); got != children[0].ID {
		t.Errorf("a grandchild has %q", got)
	}

	if code, _, errs := d.cli("pause", id); code != 0 {
		t.Fatal(errs)
	}
	d.refusesFork(1, mounted("branched", "/data", ""), api.CodeConflict, api.ReasonVolumeHeld)
	if code, _, errs := d.cli("resume", id); code != 0 {
		t.Fatal(errs)
	}
	if got := d.sh(id, "cat /data/file; echo resumed > /data/file; sync"); got != "after" {
		t.Errorf("the resumed sandbox has %q", got)
	}

	if code, _, errs := d.cli("rollback", id, "with-volume"); code != 0 {
		t.Fatal(errs)
	}
	if got := d.sh(id, "cat /data/file; echo back > /data/file"); got != "before" {
		t.Errorf("the sandbox that was rolled back has %q", got)
	}
	_, err := d.c.Rollback(t.Context(), id, parentTag)
	if failure(err).Reason != api.ReasonVolumeOther {
		t.Errorf("the rollback to a snapshot without the volume: %v", err)
	}
	d.kill(id)
	next := d.with(1, mounted("branched", "/data", ""))[0].ID
	if got := d.sh(next, "cat /data/file"); got != "back" {
		t.Errorf("the volume has %q", got)
	}
	d.kill(next)
}

// TestVolumesSurviveKills kills the daemon while sandboxes have volumes.
func TestVolumesSurviveKills(t *testing.T) {
	kvmtest.Drawn(t)
	first := shared(t)
	d := secondDaemon(t)
	if err := cloneStore(first, d); err != nil {
		t.Fatal(err)
	}
	d.start()
	d.volume(api.CreateVolumeRequest{Name: "killed", SizeMiB: 128})
	id := d.with(1, mounted("killed", "/data", ""))[0].ID
	d.sh(id, "echo one > /data/file; sync")
	d.end(syscall.SIGKILL)
	d.start()
	if got := d.sh(id, "cat /data/file; echo two > /data/file; sync"); got != "one" {
		t.Errorf("after the kill: %q", got)
	}
	d.refusesFork(1, mounted("killed", "/data", ""), api.CodeConflict, api.ReasonVolumeHeld)
	d.branch(id, api.BranchRequest{Tag: "killed-branch"})
	d.sh(id, "echo three > /data/file; sync")
	d.end(syscall.SIGKILL)
	d.start()
	if got := d.sh(id, "cat /data/file"); got != "three" {
		t.Errorf("after the second kill: %q", got)
	}
	if code, _, errs := d.cli("rollback", id, "killed-branch"); code != 0 {
		t.Fatal(errs)
	}
	if got := d.sh(id, "cat /data/file; echo four > /data/file; sync"); got != "two" {
		t.Errorf("after the rollback: %q", got)
	}
	info, err := d.c.Sandbox(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(*info.PID, syscall.SIGKILL); err != nil { // the VMM, while the volume is mounted
		t.Fatal(err)
	}
	eventually(t, "failed sandbox", func() bool {
		i, err := d.c.Sandbox(t.Context(), id)
		return err == nil && i.Status == api.SandboxFailed
	})
	next := d.with(1, mounted("killed", "/data", ""))[0].ID
	if got := d.sh(next, "cat /data/file"); got != "four" {
		t.Errorf("after the VMM's kill: %q", got)
	}
	d.kill(next)
}

// TestAVolumeMoves hands a volume over from a paused sandbox, also to a child that fails, and checks both ends.
func TestAVolumeMoves(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	d.unchanged()
	d.volume(api.CreateVolumeRequest{Name: "moved", SizeMiB: 64})
	old := d.with(1, mounted("moved", "/data", ""))[0].ID
	d.sh(old, "exec 3>/data/open; echo kept > /data/file; setsid sh -c 'sleep 86400' >/dev/null 2>&1 <&- &") // holds an open file
	d.refusesFork(1, mounted("moved", "/data", api.VolumeMove), api.CodeConflict, api.ReasonVolumeHeld)
	d.refusesFork(2, mounted("moved", "/data", api.VolumeMove), api.CodeInvalid, api.ReasonVolumePrivate)
	life := d.life()
	if _, err := life.Pause(t.Context(), old, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}

	// A child that fails gives it back.
	n := 1
	req := api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n, Volumes: mounted("moved", "/data", api.VolumeMove)}
	req.Env = map[string]string{"E2E_DIE": "1"}
	if res, err := d.c.Fork(t.Context(), req); err == nil && len(res.Failed()) != 1 {
		t.Fatalf("the child did not fail: %+v", res)
	}
	d.wantHolder("moved", old)
	if info, err := life.Resume(t.Context(), old); err != nil || info.Volumes[0].Mode != api.VolumePrivate {
		t.Fatalf("%+v, %v", info.Volumes, err)
	}
	if got := d.sh(old, "cat /data/file; echo resumed > /data/file"); got != "kept" {
		t.Errorf("after the failed fork: %q", got)
	}
	if _, err := life.Pause(t.Context(), old, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}

	next := d.with(1, mounted("moved", "/data", api.VolumeMove))[0]
	if next.Volumes[0].Mode != api.VolumePrivate {
		t.Errorf("the next sandbox has %+v", next.Volumes)
	}
	d.wantHolder("moved", next.ID)
	if got := d.sh(next.ID, "cat /data/file; echo next > /data/file; sync"); got != "resumed" {
		t.Errorf("the next sandbox reads %q", got)
	}
	info, err := life.Resume(t.Context(), old)
	if err != nil || info.Volumes[0].Mode != api.VolumeClone {
		t.Fatalf("%+v, %v", info.Volumes, err)
	}
	if got := d.sh(old, "cat /data/file; echo old > /data/file; sync"); got != "resumed" {
		t.Errorf("the old sandbox reads %q", got)
	}
	child := d.branch(old, api.BranchRequest{Tag: "of-the-old", N: 1}).Children[0].ID
	if got := d.sh(child, "cat /data/file"); got != "old" {
		t.Errorf("a branch of the old sandbox reads %q", got)
	}
	d.kill(old)
	d.wantHolder("moved", next.ID)
	d.kill(next.ID)
	if got := d.sh(d.with(1, mounted("moved", "/data", api.VolumeMove))[0].ID, "cat /data/file"); got != "next" {
		t.Errorf("the volume has %q", got)
	}
}

// wantHolder checks which sandbox has a volume.
func (d *daemon) wantHolder(volume, id string) {
	d.t.Helper()
	v, err := d.c.Volumes().Get(d.t.Context(), volume)
	if err != nil || v.Sandbox != id {
		d.t.Errorf("volume %s is in %q, want %s: %v", volume, v.Sandbox, id, err)
	}
}

// TestVolumesTravel sends a snapshot with a volume to another daemon by a registry and by a file. Its children there
// read and write the content, and neither side has a volume more.
func TestVolumesTravel(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	d.unchanged()
	far := secondDaemon(t)
	if err := cloneStore(d, far); err != nil {
		t.Fatal(err)
	}
	far.start()
	far.unchanged()
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	ref, file := strings.TrimPrefix(s.URL, "http://")+"/team/with-volume:v1", filepath.Join(t.TempDir(), "with-volume.tar")
	d.volume(api.CreateVolumeRequest{Name: "sent", SizeMiB: 128})
	id := d.with(1, mounted("sent", "/data", ""))[0].ID
	d.sh(id, "dd if=/dev/urandom of=/data/big bs=1M count=8 2>/dev/null; sha256sum < /data/big > /data/sum; sync; echo kept > /data/file")
	d.branch(id, api.BranchRequest{Tag: "travels"})
	d.kill(id)
	const names = "sent on /data, 128 MiB"
	for _, args := range [][]string{{"push", "travels", ref}, {"snapshot", "export", "travels", file}, {"snapshot", "info", "travels"}} {
		if code, out, errs := d.cli(args...); code != 0 || !strings.Contains(out+errs, names) {
			t.Errorf("forkd %q: exit code %d, %s%s; want %q", args, code, out, errs, names)
		}
	}
	if err := d.c.Volumes().Remove(t.Context(), "sent"); err != nil { // the snapshot has its own copy
		t.Fatal(err)
	}
	for tag, args := range map[string][]string{"pulled": {"pull", ref, "--tag", "pulled"},
		"imported": {"snapshot", "import", file, "--tag", "imported"}} {
		far.forget(tag)
		if code, _, errs := far.cli(args...); code != 0 {
			t.Fatal(errs)
		}
		n := 2
		res := far.forkSome(api.CreateSandboxesRequest{SnapshotTag: tag, N: &n})
		for _, sb := range res.OK() {
			got := far.sh(sb.ID, `[ "$(sha256sum < /data/big)" = "$(cat /data/sum)" ] && cat /data/file; echo `+sb.ID+
				" > /data/file; sync; cat /data/file")
			if got != "kept\n"+sb.ID || len(sb.Volumes) != 1 || sb.Volumes[0].Mode != api.VolumeClone {
				t.Errorf("a child of %s has %q and the volumes %+v", tag, got, sb.Volumes)
			}
		}
		if len(res.OK()) != n {
			t.Errorf("%s: %+v", tag, res.Failed())
		}
	}
	if list, err := far.c.Volumes().List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("the other daemon has volumes %+v, %v", list, err)
	}
}
