package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// imageWithDisk is the small image with a disk of 4 GiB for the guest's writes. Its constant files
// are outside the store, so the store's file system can be small.
func imageWithDisk(t *testing.T, store, name string) {
	t.Helper()
	aside, err := beside(store)
	if err != nil {
		t.Fatal(err)
	}
	if err := harness.PutSmallImage(t, aside, name, harness.SmallImage{Upper: kvmtest.Fixture(t, "py."+image.UpperFile)}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(store, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{image.KernelFile, image.InitrdFile} {
		if err := os.Symlink(filepath.Join(aside, name, file), filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{image.RootFile, image.UpperFile, image.MetadataFile} {
		if err := link(filepath.Join(aside, name, file), filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
}

// fillHoles makes a tmpfs allocate the pages for holes of the store's layers. A guest also
// allocates them when it reads memory that its snapshot never wrote. On a full tmpfs it would stall
// for this reason, and not because of its disk.
func fillHoles(t *testing.T, store string) {
	t.Helper()
	layers, err := filepath.Glob(filepath.Join(store, "layers", "layers", "*"))
	if err != nil || len(layers) == 0 {
		t.Fatalf("layers: %q, %v", layers, err)
	}
	for _, name := range layers {
		if err := touchPages(name); err != nil {
			t.Fatal(err)
		}
	}
}

// touchPages reads a byte of each page of a file through a mapping. It skips a file larger than the
// guest's memory: it is a disk, which is never mapped.
func touchPages(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() > 512<<20 {
		return err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	return unix.Munmap(b)
}

// leave fills a file system with a file, except for so many MiB. Calling makeRoom removes the file.
func leave(t *testing.T, mount string, mib int64) (makeRoom func()) {
	t.Helper()
	path := filepath.Join(mount, "ballast")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, freeBytes(t, mount)-mib<<20); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// writesFiles writes files in the background, makes each durable, and then records its checksum.
const writesFiles = `busybox setsid busybox sh -c '
for i in $(busybox seq 1 24); do
	busybox dd if=/dev/urandom of=/root/f$i bs=64k count=16 conv=fsync 2>>/root/errors || echo dd $i >>/root/failed
	busybox md5sum /root/f$i >>/root/sums
	busybox sync
done
echo >/root/done' >/dev/null 2>&1 </dev/null &`

// Acknowledged writes of a guest survive any problem of the host's disk. Without space the sandbox
// is paused, the reason is reported everywhere, and it resumes without a request. A disk that has
// lost writes anyway reports this everywhere, and accepts no more writes.
func TestWhatWasAcknowledgedIsKept(t *testing.T) {
	t.Parallel()
	kvmtest.Soak(t) // takes two minutes
	kvmtest.Require(t)
	mount := smallDisk(t, 512)
	d := secondDaemon(t)
	d.Data, d.Flags = mount, []string{"--disk-reserve", "0", "--pool", "0"}
	imageWithDisk(t, d.images(), "box")
	d.start()
	if _, err := d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "parent", Image: "box"}, nil); err != nil {
		t.Fatal(err)
	}
	sbs := d.forkOf("parent", 2)
	d.sub("a disk that is full in the guest", func(*testing.T) { d.fullInTheGuest(sbs[0].ID, sbs[1].ID, mount) })
	d.sub("a store that is full", func(*testing.T) { d.fullStore(sbs[0].ID, sbs[1].ID, mount) })
	d.sub("writes that are lost", func(*testing.T) { d.lostWrites(sbs[0].ID, *sbs[0].PID) })
}

// fullInTheGuest makes a guest fill its own disk. Other sandboxes must not be affected.
func (d *daemon) fullInTheGuest(id, sibling, mount string) {
	t := d.t
	free := freeBytes(t, mount)
	d.sh(id, `n=0; for size in 512M 16M 1M; do
			while busybox fallocate -l $size /root/big$((n=n+1)); do [ $n -lt 100 ] || exit 1; done 2>/dev/null
		done
		busybox dd if=/dev/zero of=/root/more bs=1M count=8 2>&1 | busybox grep -q "No space left"`)
	if used := free - freeBytes(t, mount); used > 32<<20 {
		t.Errorf("it took %d MiB of the host", used>>20)
	}
	if info, err := d.c.Sandbox(t.Context(), id); err != nil || info.Status != api.SandboxRunning || info.Warning != "" {
		t.Errorf("it is %+v, %v", info, err)
	}
	d.sh(sibling, "echo kept > /root/kept; busybox sync")
	d.sh(id, "busybox rm /root/big* /root/more; busybox sync; echo fits > /root/fits; busybox sync")
}

func (d *daemon) fullStore(id, sibling, mount string) {
	t, ctx := d.t, d.t.Context()
	fillHoles(t, mount)
	makeRoom := leave(t, mount, 8)
	d.sh(id, writesFiles)
	status := func() api.SandboxInfo {
		info, err := d.c.Sandbox(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	eventually(t, "sandbox that is paused", func() bool { return status().Status == api.SandboxStalled })
	if got := status().Reason; !strings.Contains(got, "no room on the host for its disk") || !strings.Contains(got, "no space left on device") {
		t.Errorf("the reason is %q", got)
	}
	for _, args := range [][]string{{"ps"}, {"ps", "--json"}, {"inspect", id}, {"inspect", id, "--json"}} {
		if code, out, errs := d.cli(args...); code != 0 || !strings.Contains(out, "paused") || !strings.Contains(out, "no room on the host") {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
	d.end(syscall.SIGKILL) // the next daemon finds this state
	d.start()
	_, err := d.c.Exec(ctx, id, api.ExecRequest{Args: []string{"true"}})
	wantError(t, err, api.CodeNoSpace, id, "paused: no room on the host", "disk_no_room")
	_, err = d.c.Branch(ctx, id, api.BranchRequest{Tag: "full"})
	wantError(t, err, api.CodeNoSpace, "paused: no room on the host")
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"exec", id, "true"}, 125}, // 125: the failure is not the program's
		{[]string{"cp", id + ":/root/sums", "-"}, api.CodeNoSpace.Exit()},
		{[]string{"branch", id}, api.CodeNoSpace.Exit()},
	} {
		if code, out, errs := d.cli(c.args...); code != c.code || !strings.Contains(errs, "no room on the host") {
			t.Errorf("%s: exit code %d: %s%s", c.args, code, out, errs)
		}
	}
	beside, err := d.c.Exec(ctx, sibling, api.ExecRequest{Args: []string{"busybox", "cat", "/root/kept"}, TimeoutSecs: patience.Seconds() / 4})
	if client.CodeOf(err) == api.CodeNoSpace { // it also writes at times
		t.Logf("its sibling: %v", err)
	} else if err != nil || beside.Stdout != "kept\n" {
		info, _ := d.c.Sandbox(ctx, sibling)
		t.Errorf("its sibling, %+v, says %+v, %v", info, beside, err)
	}
	if status().Status != api.SandboxStalled {
		t.Error("it runs, though there is no room")
	}
	makeRoom()
	eventually(t, "sandbox that runs", func() bool { return status().Status == api.SandboxRunning })
	eventually(t, "end of its work", func() bool { return d.sh(id, "busybox ls /root/done 2>/dev/null; true") != "" })
	d.whole(id)
	if got := d.sh(id, "busybox dmesg | busybox grep -i -e 'I/O error' -e EXT4-fs.error; true"); got != "" {
		t.Errorf("the guest was told of errors: %s", got)
	}
	res := d.branch(id, api.BranchRequest{Tag: "whole", N: 1})
	d.whole(res.Children[0].ID)
	if err := d.c.Kill(ctx, res.Children[0].ID); err != nil {
		t.Error(err)
	}
}

// whole checks that all files have their acknowledged content, read from the disk.
func (d *daemon) whole(id string) {
	d.t.Helper()
	if got := d.sh(id, "echo 3 > /proc/sys/vm/drop_caches; busybox cat /root/failed 2>/dev/null; busybox md5sum -c /root/sums | busybox grep -c ': OK$'"); got != "24" {
		d.t.Errorf("%s has of its 24 files: %s", id, got)
	}
}

// lostWrites limits the size of the VMM's files, which simulates a failing disk.
func (d *daemon) lostWrites(id string, pid int) {
	t := d.t
	d.sh(id, "echo fine > /root/fine; busybox sync")
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1, Max: unix.RLIM_INFINITY}, &before); err != nil {
		t.Fatal(err)
	}
	d.sh(id, "! busybox dd if=/dev/zero of=/root/lost bs=4k count=4 conv=fsync 2>/dev/null")
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &before, nil); err != nil { // the write is already lost
		t.Fatal(err)
	}
	warned := func() api.SandboxInfo {
		info, err := d.c.Sandbox(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	eventually(t, "warning", func() bool { return strings.Contains(warned().Warning, "its disk has lost writes") })
	eventually(t, "file system that is read-only", func() bool {
		return d.sh(id, "echo more > /root/more 2>/dev/null; busybox sync; echo again > /root/again 2>&1 && echo written; true") != "written"
	})
	// With errors=remount-ro, ext4 of Linux 6.6 to 6.14 shuts the file system down instead of
	// making it read-only (commits 95257987a638, f3054e53c2f3). Then reads fail, too. They never
	// return wrong bytes.
	if got := d.sh(id, "busybox cat /root/fine 2>&1; true"); got != "fine" && !strings.Contains(got, "Input/output error") {
		t.Errorf("what was there before reads %q", got)
	}
	for _, args := range [][]string{{"ps"}, {"ps", "--json"}, {"inspect", id}, {"inspect", id, "--json"}} {
		if code, out, errs := d.cli(args...); code != 0 || !strings.Contains(out, "lost writes") {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
	_, err := d.c.Branch(t.Context(), id, api.BranchRequest{Tag: "damaged"})
	wantError(t, err, api.CodeConflict, "cannot be branched", "lost writes", "disk_lost_writes")
	if code, _, errs := d.cli("branch", id, "--tag", "damaged", "--force"); code != 0 {
		t.Errorf("branch --force: exit code %d: %s", code, errs)
	}
}
