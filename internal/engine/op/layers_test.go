package op_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// layerIDs returns the layers in the store.
func layerIDs(t *testing.T, h *enginefake.Host) []layer.ID {
	t.Helper()
	all, err := enginefake.Layers(h).List()
	if err != nil {
		t.Fatal(err)
	}
	var ids []layer.ID
	for _, l := range all {
		ids = append(ids, l.ID)
	}
	return ids
}

func pinNames(t *testing.T, h *enginefake.Host) (names []string) {
	t.Helper()
	pins, err := enginefake.Layers(h).Pins()
	if err != nil {
		t.Fatal(err)
	}
	for name := range pins {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Each branch of one source has the disk at its moment. The source still has one overlay file,
// however often it is branched.
func TestBranchesOfOneDisk(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	sb := h.Disky(e, 1)[0]
	before := h.ReadOverlay(sb.ID)
	for i, tag := range []string{"x", "y", "z"} {
		if err := h.Branch(e, sb.ID, tag); err != nil {
			t.Fatal(err)
		}
		if got := diskOf(h, tag); got != before {
			t.Errorf("branch %d has %q, the source had %q", i, got, before)
		}
		before += fmt.Sprintf("branch %d\n", i+1) // written by the source after it
		if got := h.ReadOverlay(sb.ID); got != before {
			t.Errorf("after branch %d the source has %q, want %q", i, got, before)
		}
		if own := strings.Fields(h.OverlayFiles()); len(own) != 1 {
			t.Errorf("after branch %d there are overlay files %q", i, own)
		}
	}
	_, rec := h.Journal(sb.ID)
	if base := rec.Disks[0].Backing; len(base) != 4 {
		t.Errorf("the source's disk lies over %d layers, want the snapshot's and one for each branch", len(base))
	}
	info, err := e.SnapshotInfo(t.Context(), "z")
	if err != nil || info.DiskLogicalBytes != enginefake.UpperSize || info.DiskOwnBytes == 0 || info.DiskPhysicalBytes <= info.DiskOwnBytes || info.MemoryOwnBytes >= info.MemoryPhysicalBytes {
		t.Errorf("sizes: %+v, %v", info, err)
	}
	child := h.Fork(e, "z", 1)[0]
	if lines := strings.Split(h.ReadOverlay(child.ID), "\n"); len(lines) < 3 || !strings.Contains(strings.Join(lines, " "), "branch 2") {
		t.Errorf("the child sees %q", lines)
	}
}

// However often a source is branched, its disk has a limited number of backing layers, and its VMM
// a limited number of open files.
func TestASourceBranchedVeryOften(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	sb := h.Disky(e, 1)[0]
	for i := range snapshot.DiskLimits.Layers + 6 {
		tag := fmt.Sprint("x", i)
		if err := h.Branch(e, sb.ID, tag); err != nil {
			t.Fatal(err)
		}
		if err := e.DeleteSnapshot(t.Context(), tag, sandbox.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	_, rec := h.Journal(sb.ID)
	base := rec.Disks[0].Backing
	if len(base) > snapshot.DiskLimits.Layers {
		t.Errorf("its disk lies over %d layers", len(base))
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", sb.PID))
	if err != nil || len(fds) > len(base)+20 {
		t.Errorf("its VMM has %d files open over %d layers, %v", len(fds), len(base), err)
	}
	if got := h.ReadOverlay(sb.ID); !strings.Contains(got, fmt.Sprint("branch ", snapshot.DiskLimits.Layers+6)) || !strings.Contains(got, "branch 1\n") {
		t.Errorf("it sees %q", got)
	}
	enginefake.Eventually(t, "collection of what the deleted branches held", func() bool { return len(layerIDs(t, h)) <= len(base)+1 })
}

// A branch that fails after the disk was switched leaves the disk unchanged, and the next one has
// all of it. The end of the daemon in between does not matter.
func TestADiskThatWentOnInVain(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for _, fault := range []string{"capture-late", "captured-fail", "rebase-fail"} {
			t.Run(fmt.Sprint(fault, " restart ", restart), func(t *testing.T) {
				h := enginefake.NewHost(t)
				e := h.Open()
				sb := h.Disky(e, 1)[0]
				h.Fault(fault, 1)
				if err := h.Branch(e, sb.ID, "x"); (err == nil) != (fault == "rebase-fail") {
					t.Fatalf("the first branch: %v", err)
				}
				if restart {
					h.Close(e)
					e = h.Open()
				}
				if err := h.Branch(e, sb.ID, "y"); err != nil {
					t.Fatal(err)
				}
				got := diskOf(h, "y")
				if !strings.Contains(got, "empty") || fault != "capture-late" && !strings.Contains(got, "branch 1") || strings.Contains(got, "branch 2") {
					t.Errorf("the second branch has %q", got)
				}
				if own := strings.Fields(h.OverlayFiles()); len(own) != 1 {
					t.Errorf("there are overlay files %q", own)
				}
			})
		}
	}
}

// If a daemon missed the result, it asks the VMM: its record may name a file the disk was switched
// to, or not.
func TestAnOpenRecordIsResolved(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	sb := h.Disky(e, 1)[0]
	dir, rec := h.Journal(sb.ID)
	next := filepath.Join(h.Cfg.StoreDir, "own", filepath.Base(dir)+"-disk1-7")
	if err := os.WriteFile(next, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.Close(e)
	rec.Disks[0].Next = next
	if err := vmproc.WriteJSON(filepath.Join(dir, vmproc.SandboxJournal), rec); err != nil {
		t.Fatal(err)
	}
	e = h.Open()
	if err := h.Branch(e, sb.ID, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(next); err == nil {
		t.Error("the file that the disk did not go on in is still there")
	}
	if got := diskOf(h, "x"); !strings.Contains(got, "empty") {
		t.Errorf("the branch has %q", got)
	}
}

// Layers are removed exactly when their last user is gone.
func TestLayersLiveAsLongAsSomebodyNeedsThem(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	sb := h.Disky(e, 1)[0]
	if err := h.Branch(e, sb.ID, "x"); err != nil {
		t.Fatal(err)
	}
	pin := "vm." + sb.ID
	if got := pinNames(t, h); !slices.Equal(got, []string{"snapshot.d", "snapshot.x", pin}) {
		t.Errorf("pins %q", got)
	}
	gone := func(want int) {
		t.Helper()
		enginefake.Eventually(t, fmt.Sprintf("store of %d layers", want), func() bool { return len(layerIDs(t, h)) == want })
	}
	gone(4) // memory and disk of each
	for _, tag := range []string{"x", "d"} {
		if err := e.DeleteSnapshot(t.Context(), tag, sandbox.DeleteOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	gone(3) // the branch's memory has no users any more; its disk is the sandbox's own
	h.Close(e)
	e = h.Open()
	if _, err := e.CollectLayers(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if got := len(layerIDs(t, h)); got != 3 {
		t.Errorf("the next daemon has %d layers", got)
	}
	if got := h.ReadOverlay(sb.ID); !strings.Contains(got, "branch 1") {
		t.Errorf("the sandbox sees %q", got)
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	gone(0)
	if got := pinNames(t, h); len(got) != 0 {
		t.Errorf("pins %q", got)
	}
}

// A layer that is open during a deletion, for instance in a VM that ends slowly, is collected later
// without a request.
func TestALayerThatIsOpenAtADeletionIsCollectedLater(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	sb := h.Disky(e, 1)[0]
	open, err := enginefake.Layers(h).Get(layerIDs(t, h)[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := e.DeleteSnapshot(t.Context(), "d", sandbox.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "store of one layer", func() bool { return len(layerIDs(t, h)) == 1 })
	open.Close()
	enginefake.Eventually(t, "empty store", func() bool { return len(layerIDs(t, h)) == 0 })
}

// A forced deletion of a parent keeps its branches complete.
func TestABranchOutlivesItsParentsDeletion(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	sb := h.Disky(e, 1)[0]
	if err := h.Branch(e, sb.ID, "x"); err != nil {
		t.Fatal(err)
	}
	if err := e.DeleteSnapshot(t.Context(), "d", sandbox.DeleteOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := e.CollectLayers(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	h.Fork(e, "x", 2)
	enginefake.Eventually(t, "digests", func() bool { i, err := e.SnapshotInfo(t.Context(), "x"); return err == nil && i.DigestsReady })
	if r, err := e.VerifySnapshot(t.Context(), "x"); err != nil || !r.OK() {
		t.Errorf("verify: %+v, %v", r, err)
	}
}

// A copied store works like the original.
func TestACopiedStoreWorks(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	sb := h.Disky(e, 1)[0]
	if err := h.Branch(e, sb.ID, "x"); err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	want := diskOf(h, "x")
	h.Close(e)
	h2 := enginefake.NewHost(t)
	if out, err := exec.Command("cp", "-a", "--sparse=always", h.Cfg.StoreDir+"/.", h2.Cfg.StoreDir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Rename(h.Cfg.StoreDir, h.Cfg.StoreDir+".away"); err != nil {
		t.Fatal(err)
	}
	e2 := h2.Open()
	for _, tag := range []string{"d", "x"} {
		h2.Fork(e2, tag, 2)
	}
	if got := diskOf(h2, "x"); got != want {
		t.Errorf("the disk is %q, was %q", got, want)
	}
	if got := pinNames(t, h2); !slices.Contains(got, "snapshot.x") {
		t.Errorf("pins %q", got)
	}
}

func TestCompact(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	sb := h.Disky(e, 1)[0]
	if err := h.Branch(e, sb.ID, "x"); err != nil {
		t.Fatal(err)
	}
	var steps []sandbox.Step
	s, err := e.CompactSnapshot(t.Context(), "x", "flat", func(s sandbox.Step) { steps = append(steps, s) })
	if err != nil {
		t.Fatal(err)
	}
	checkCompactSteps(t, steps)
	if s.Status != sandbox.SnapshotReady || s.ChainDepth() != 0 || s.ParentTag != "" || s.MemoryOwnBytes != s.MemoryPhysicalBytes || s.DiskOwnBytes != s.DiskPhysicalBytes {
		t.Errorf("got %+v", s)
	}
	if got, want := diskOf(h, "flat"), diskOf(h, "x"); got != want {
		t.Errorf("the disk is %q, want %q", got, want)
	}
	for _, tag := range []string{"x", "d"} {
		if err := e.DeleteSnapshot(t.Context(), tag, sandbox.DeleteOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	h.Fork(e, "flat", 2)
	for _, c := range []struct {
		tag, to string
		kind    error
	}{{"flat", "flat", sandbox.ErrInvalid}, {"flat", "../x", sandbox.ErrInvalid}, {"none", "y", sandbox.ErrNotFound}, {"flat", "taken", sandbox.ErrConflict}} {
		if c.to == "taken" {
			h.Snapshot(e, "taken")
		}
		if _, err := e.CompactSnapshot(t.Context(), c.tag, c.to, nil); !errors.Is(err, c.kind) {
			t.Errorf("compact %s to %s: %v", c.tag, c.to, err)
		}
	}
	if names := h.Stored(); !strings.HasSuffix(names, "flat taken") || strings.Count(names, " ") != 2 || retiredFolders(h) != 1 { // d is kept for the sandbox
		t.Errorf("stored are %q", names)
	}
}

// Each image is begun, read to its end and done, in sequence.
func checkCompactSteps(t *testing.T, steps []sandbox.Step) {
	t.Helper()
	var order []string
	for i, s := range steps {
		switch {
		case s.Done && (s.Bytes == 0 || s.Total != 0 || steps[i-1].Bytes != steps[i-1].Total):
			t.Errorf("step %+v is done after %+v", s, steps[i-1])
		case s.Done:
			order = append(order, s.Name+" done")
		case s.Total > 0:
			if s.Name != steps[i-1].Name || s.Bytes <= steps[i-1].Bytes || s.Bytes > s.Total {
				t.Errorf("step %+v comes after %+v", s, steps[i-1])
			}
		default:
			order = append(order, s.Name)
		}
	}
	if got := strings.Join(order, ", "); got != "memory, memory done, disk1, disk1 done" {
		t.Errorf("the steps are %s", got)
	}
	if len(steps) < 6 {
		t.Errorf("no step says how far it is: %+v", steps)
	}
}

// A snapshot that would leave less than the reserve is refused.
func TestTheReserveOfTheDiskIsKept(t *testing.T) {
	h := enginefake.NewHost(t)
	h.Cfg.DiskReserve = 1 << 60
	e := h.Open()
	_, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "tiny"}, nil)
	enginefake.WantError(t, err, sandbox.ErrNoSpace, "including the reserve")
	if got := h.Stored(); got != "" {
		t.Errorf("stored are %q", got)
	}
}
