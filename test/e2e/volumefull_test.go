package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// writesDir writes files to a directory as writesFiles does, with less text.
func writesDir(dir string, n int) string {
	return fmt.Sprintf(`busybox setsid busybox sh -c 'cd %s; busybox rm -f f* sums failed done
for i in $(busybox seq 1 %d); do
	busybox dd if=/dev/urandom of=f$i bs=64k count=16 conv=fsync 2>/dev/null || echo dd $i >>failed
	busybox md5sum f$i >>sums
	busybox sync
done
echo >done' >/dev/null 2>&1 </dev/null &`, dir, n)
}

// wholeDir checks that the files of writesDir which have a checksum are whole, read from the disk. It returns their number.
func (d *daemon) wholeDir(id, dir string) (n int) {
	d.t.Helper()
	got := d.sh(id, "cd "+dir+`; echo 3 > /proc/sys/vm/drop_caches; busybox cat failed 2>/dev/null
		echo $(busybox md5sum -c sums 2>/dev/null | busybox grep -c ': OK$') $(busybox grep -c . sums)`)
	var all int
	if _, err := fmt.Sscanf(got, "%d %d", &n, &all); err != nil || n != all {
		d.t.Errorf("in %s of %s these files are whole, of so many: %q", dir, id, got)
	}
	return n
}

// TestAVolumeOnAFullDisk writes to a volume and to the root disk until the host has no space. The sandbox is paused, new
// volumes are refused and leave nothing, and with space it continues. A kill in that state leaves the acknowledged
// content of the volume. It takes about 40 s, and 512 MiB of memory for its disk.
func TestAVolumeOnAFullDisk(t *testing.T) {
	t.Parallel()
	kvmtest.Require(t)
	kvmtest.Drawn(t)
	mount := smallDisk(t, 512)
	d := secondDaemon(t)
	d.Data, d.Flags = mount, []string{"--disk-reserve", "0", "--pool", "0"}
	imageWithDisk(t, d.images(), "box")
	d.start()
	if _, err := d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "parent", Image: "box"}, nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"full", "spare"} {
		d.volume(api.CreateVolumeRequest{Name: name, SizeMiB: 1024})
	}
	one := 1
	fork := func() string {
		t.Helper()
		res := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: "parent", N: &one, Volumes: mounted("full", "/data", "")})
		if len(res.OK()) != 1 {
			t.Fatal(res.Failed())
		}
		return res.OK()[0].ID
	}
	id := fork()
	status := func() api.SandboxStatus {
		info, err := d.c.Sandbox(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return info.Status
	}
	stalled := func() bool { return status() == api.SandboxStalled }
	fillHoles(t, mount)
	makeRoom := leave(t, mount, 8)
	d.sh(id, writesDir("/data", 16)+"\n"+writesDir("/root", 16))
	eventually(t, "sandbox that is paused", stalled)
	d.told(id, "sandbox.stalled")
	d.refusesVolumes()
	_, err := d.c.Branch(t.Context(), id, api.BranchRequest{Tag: "full"})
	wantError(t, err, api.CodeNoSpace, "paused: no room on the host")
	if !stalled() {
		t.Error("it runs, though there is no room")
	}
	makeRoom()
	eventually(t, "sandbox that runs", func() bool { return status() == api.SandboxRunning })
	d.told(id, "sandbox.continued")
	eventually(t, "end of its work", func() bool { return d.sh(id, "busybox ls /data/done /root/done 2>/dev/null | busybox wc -l") == "2" })
	child := d.branch(id, api.BranchRequest{Tag: "whole", N: 1}).Children[0].ID
	for _, sb := range []string{id, child} {
		for _, dir := range []string{"/data", "/root"} {
			if n := d.wholeDir(sb, dir); n != 16 {
				t.Errorf("%s of %s has %d files", dir, sb, n)
			}
		}
	}
	if got := d.sh(id, "busybox dmesg | busybox grep -i -e 'I/O error' -e EXT4-fs.error; true"); got != "" {
		t.Errorf("the guest saw errors: %s", got)
	}
	d.kill(child)

	// A kill while there is no room.
	fillHoles(t, mount) // of the branch
	d.sh(id, "busybox rm -f /root/f*; busybox sync")
	makeRoom = leave(t, mount, 6)
	d.sh(id, writesDir("/data", 16))
	eventually(t, "sandbox that is paused again", stalled)
	d.kill(id)
	if v, err := d.c.Volumes().Get(t.Context(), "full"); err != nil || v.Sandbox != "" {
		t.Errorf("after the kill the volume is in %q, %v", v.Sandbox, err)
	}
	makeRoom()
	id = fork()
	if got := d.sh(id, "busybox grep -c ' /data ext4 rw' /proc/mounts"); got != "1" {
		t.Errorf("the volume is mounted as %q", d.sh(id, "busybox grep /data /proc/mounts; true"))
	}
	if n := d.wholeDir(id, "/data"); n == 0 {
		t.Error("no acknowledged file is on the volume")
	}
	d.sh(id, "echo more > /data/more; busybox sync")
}

// refusesVolumes checks that on a full disk no volume is made, and that a refused one is neither listed nor stored.
func (d *daemon) refusesVolumes() {
	t, ctx := d.t, d.t.Context()
	t.Helper()
	before := names(d.Data + "/volumes")
	for what, try := range map[string]func() (api.Volume, error){
		"a new volume": func() (api.Volume, error) {
			return d.c.Volumes().Create(ctx, api.CreateVolumeRequest{Name: "late", SizeMiB: 1024})
		},
		"a clone": func() (api.Volume, error) {
			return d.c.Volumes().Create(ctx, api.CreateVolumeRequest{Name: "late", From: "spare"})
		},
		"a snapshot": func() (api.Volume, error) { return d.c.Volumes().Snapshot(ctx, "spare", "late") },
	} {
		if _, err := try(); err == nil { // it shares its files, and the rest found room
			if err := d.c.Volumes().Remove(ctx, "late"); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			t.Logf("%s had room", what)
		} else if client.CodeOf(err) != api.CodeNoSpace {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := d.c.Volumes().Get(ctx, "late"); !client.IsNotFound(err) {
			t.Errorf("%s is listed: %v", what, err)
		}
		eventually(t, "end of "+what, func() bool { return fmt.Sprint(names(d.Data+"/volumes")) == fmt.Sprint(before) })
	}
	if v, err := d.c.Volumes().Get(ctx, "spare"); err != nil || v.Sandbox != "" {
		t.Errorf("the volume that was cloned is %+v, %v", v, err)
	}
}

// told waits for an event about a sandbox.
func (d *daemon) told(id, kind string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	found := errors.New("found")
	err := d.c.Events(ctx, client.EventsRequest{Sandbox: id, Kinds: []string{kind}, All: true}, func(api.Event) error { return found })
	if !errors.Is(err, found) {
		d.t.Errorf("no event %s of %s: %v", kind, id, err)
	}
}
