package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// changes installs a package, changes a file, removes one, and starts a process.
const changes = makePackage + `
chmod 600 /etc/motd; echo more >> /etc/motd
rm /etc/debian_version
rm -r /etc/skel; mkdir /etc/skel
sleep 4712 >/dev/null 2>&1 & until grep -q sleep /proc/$!/comm; do sleep 0.1; done`

func TestDiffOfTwoSnapshots(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	d.unchanged()
	d.derive(api.CreateSnapshotRequest{Tag: "changed", From: parentTag, Exec: []string{"sh", "-c", changes}, ExecUser: "root", Warm: "ballast = b'x' * (8 << 20)"})
	diff, err := d.c.DiffSnapshots(t.Context(), parentTag, "changed", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d paths compared in %.0f ms; %+v, %+v, %+v", diff.Files.Compared, diff.TookMS, diff.Files.DiffCounts, diff.Processes.DiffCounts, diff.Packages.DiffCounts)
	d.sub("files", func(t *testing.T) { filesDiffer(t, diff.Files) })
	d.sub("processes", func(t *testing.T) { processesDiffer(t, diff.Processes) })
	if p := diff.Packages; p.DiffCounts != (api.DiffCounts{Added: 1, Complete: true}) || p.Added[0] != (api.PackageEntry{Name: "mine", Architecture: "all", Version: "1"}) {
		t.Errorf("packages: %+v", p)
	}
	same, err := d.c.DiffSnapshots(t.Context(), parentTag, parentTag, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := same.Files.DiffCounts; n != (api.DiffCounts{Complete: true}) || same.Processes.DiffCounts.Added+same.Processes.DiffCounts.Removed != 0 {
		t.Errorf("a snapshot differs from itself: %+v", same)
	}
	code, out, errs := d.cli("snapshot", "diff", "changed", parentTag, "--limit", "10000")
	if code != 0 || !strings.Contains(out, "\n  - -rwxr-xr-x /usr/bin/mine (") || !strings.Contains(out, "\n  - mine:all 1\n") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
}

func filesDiffer(t *testing.T, f api.FileDiff) {
	if f.Compared > 1000 || !f.Complete { // paths equal to the image's are not compared
		t.Errorf("%d paths compared, complete %v", f.Compared, f.Complete)
	}
	has := func(list []api.FileEntry, path string) bool {
		return slices.ContainsFunc(list, func(e api.FileEntry) bool { return e.Path == path })
	}
	// The last one is in a folder removed and created again.
	if !has(f.Added, "/usr/bin/mine") || !has(f.Removed, "/etc/debian_version") || !has(f.Removed, "/etc/skel/.bashrc") {
		t.Errorf("added %+v, removed %+v", f.Added, f.Removed)
	}
	i := slices.IndexFunc(f.Changed, func(c api.FileChange) bool { return c.Path == "/etc/motd" })
	if i < 0 {
		t.Fatalf("changed: %+v", f.Changed)
	}
	if c := f.Changed[i]; c.Mode != "-rw-------" || c.ModeBefore != "-rw-r--r--" || c.SizeBytes != c.SizeBytesBefore+5 || !slices.Contains(c.What, "size") {
		t.Errorf("%+v", c)
	}
	if slices.ContainsFunc(f.Added, func(e api.FileEntry) bool {
		return strings.HasPrefix(e.Path, "/proc/") || strings.HasPrefix(e.Path, "/run/")
	}) {
		t.Error("other mounts are in it")
	}
}

func processesDiffer(t *testing.T, p api.ProcessDiff) {
	if p.DiffCounts.Added != 1 || p.DiffCounts.Removed != 0 || !slices.Equal(p.Started[0].Args, []string{"sleep", "4712"}) {
		t.Errorf("%+v", p)
	}
	// The interpreter grew by 8 MiB of ballast, and no other process grew as much.
	if c := p.Changed[0]; !strings.Contains(c.Name, "python") || c.AnonKiB-c.AnonKiBBefore < 8<<10 {
		t.Errorf("%+v", p.Changed)
	}
}
