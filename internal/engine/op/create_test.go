package op_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/snapshot"
)

func TestASnapshotIsCreatedStepByStep(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	var steps []string
	s, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "tiny", Warm: "x = 1"}, func(s sandbox.Step) {
		if s.Done {
			steps = append(steps, s.Name)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(steps, []string{sandbox.StepBoot, sandbox.StepWarm, sandbox.StepQuiesce, sandbox.StepSave}) {
		t.Errorf("steps are %v", steps)
	}
	if s.Status != sandbox.SnapshotReady || s.Image != "tiny" || s.Shape != enginefake.Shape || s.MemoryLogicalBytes != 64<<20 || s.VMStateBytes != int64(len(enginefake.State())) ||
		!slices.Equal(s.Languages, []string{"python"}) || len(s.Steps) != 4 {
		t.Errorf("got %+v", s)
	}
	if s.MemoryPhysicalBytes >= 1<<20 {
		t.Errorf("the memory takes %d bytes, want a sparse file", s.MemoryPhysicalBytes)
	}
	h.Empty()
	enginefake.Eventually(t, "digests", func() bool {
		r, err := e.VerifySnapshot(t.Context(), "a")
		return err == nil && r.OK() && r.Files == 6
	})
	// The image may be removed: the snapshot is complete.
	if err := os.RemoveAll(h.Cfg.Images.(enginefake.Images).Dir); err != nil {
		t.Fatal(err)
	}
	h.Fork(e, "a", 1)
}

func TestAParentMayBeAKernelAndARootFileSystem(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	dir := h.Cfg.Images.(enginefake.Images).Dir
	s, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Kernel: dir + "/vmlinux", Rootfs: dir + "/root", MemoryMiB: 64}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Image != "" || !strings.Contains(s.Cmdline, "root=/dev/vda") || len(s.Languages) != 0 {
		t.Errorf("got %+v", s)
	}
	h.Fork(e, "a", 1)
}

func TestWhatCannotBeASnapshotIsRefused(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "taken")
	dir := h.Cfg.Images.(enginefake.Images).Dir
	for name, c := range map[string]struct {
		req  sandbox.CreateRequest
		kind error
		text string
	}{
		"bad tag":             {sandbox.CreateRequest{Tag: "../x", Image: "tiny"}, sandbox.ErrInvalid, "bad snapshot tag"},
		"tag exists":          {sandbox.CreateRequest{Tag: "taken", Image: "tiny"}, sandbox.ErrConflict, "taken"},
		"no such image":       {sandbox.CreateRequest{Tag: "b", Image: "huge"}, sandbox.ErrNotFound, "huge"},
		"nothing named":       {sandbox.CreateRequest{Tag: "b"}, sandbox.ErrInvalid, "no image"},
		"both named":          {sandbox.CreateRequest{Tag: "b", Image: "tiny", Kernel: "k", Rootfs: "r"}, sandbox.ErrInvalid, "not both"},
		"kernel alone":        {sandbox.CreateRequest{Tag: "b", Kernel: "/k"}, sandbox.ErrInvalid, "go together"},
		"kernel not there":    {sandbox.CreateRequest{Tag: "b", Kernel: "/nowhere", Rootfs: dir + "/root"}, sandbox.ErrInvalid, "/nowhere is not a file"},
		"kernel is no kernel": {sandbox.CreateRequest{Tag: "b", Kernel: dir + "/root", Rootfs: dir + "/root"}, sandbox.ErrBootFailed, "no kernel"},
		"too much memory":     {sandbox.CreateRequest{Tag: "b", Image: "tiny", MemoryMiB: 1 << 30}, sandbox.ErrInvalid, "memory_mib"},
		"too many vCPUs":      {sandbox.CreateRequest{Tag: "b", Image: "tiny", VCPUs: 9}, sandbox.ErrInvalid, "vcpus"},
		"warm-up raises":      {sandbox.CreateRequest{Tag: "b", Image: "tiny", Warm: "raise"}, sandbox.ErrInvalid, "Traceback: line 1"},
		"more than the host":  {sandbox.CreateRequest{Tag: "b", Image: "tiny", MemoryMiB: 128 << 10}, sandbox.ErrNoMemory, "131072 MiB needed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := e.CreateSnapshot(t.Context(), c.req, nil)
			enginefake.WantError(t, err, c.kind, c.text)
			if s := h.Stored(); s != "taken" {
				t.Errorf("the store holds %s", s)
			}
		})
	}
	h.Empty()
}

func TestAFailureAtAStepLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		fault string
		kind  error
		texts []string
	}{
		{"spawn", enginefake.ErrAny, []string{"no KVM today"}},
		{"boot-panic", sandbox.ErrBootFailed, []string{"boot: ", "kernel panicked: no working init found", "the console's last lines:\nbooting with console=ttyS0"}},
		{"boot-silent", sandbox.ErrBootFailed, []string{"no ready signal after 500ms", "waiting for nothing"}},
		{"warm-hang", sandbox.ErrBootFailed, []string{"warm: the warm-up timed out after 300ms"}},
		{"quiesce-fail", sandbox.ErrBootFailed, []string{"quiesce: guest: sync: the disk hums"}},
		{"save-full", sandbox.ErrNoSpace, []string{"save: ", "no space left on device"}},
	} {
		t.Run(c.fault, func(t *testing.T) {
			h := enginefake.NewHost(t)
			req := sandbox.CreateRequest{Tag: "a", Image: "tiny"}
			switch c.fault {
			case "boot-silent":
				h.Cfg.BootWait = 500 * time.Millisecond
			case "warm-hang":
				req.WarmTimeout = 300 * time.Millisecond
			}
			e := h.Open()
			h.Fault(c.fault, 1)
			before := enginefake.OpenFiles(t)
			_, err := e.CreateSnapshot(t.Context(), req, nil)
			enginefake.WantError(t, err, c.kind, c.texts...)
			if err != nil && bytes.ContainsRune([]byte(err.Error()), 0x1b) {
				t.Error("the guest's escape codes reach the terminal")
			}
			if s := h.Stored(); s != "" {
				t.Errorf("the store holds %s", s)
			}
			if l, _ := e.ListSnapshots(t.Context()); len(l) != 0 {
				t.Errorf("listed: %v", l)
			}
			h.Empty()
			enginefake.Eventually(t, "return of all descriptors", func() bool { return enginefake.OpenFiles(t) <= before })
		})
	}
}

// Emulated CPUs occasionally make a guest's kernel fault. The first such boot is retried, a second
// one is an error.
func TestABootThatEndsWithAFaultIsTriedOnceMore(t *testing.T) {
	for faults, fails := range map[int]bool{1: false, 2: true} {
		t.Run(strconv.Itoa(faults), func(t *testing.T) {
			h := enginefake.NewHost(t)
			e := h.Open()
			h.Fault("boot-oops", faults)
			before := enginefake.OpenFiles(t)
			var notes []string
			_, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "tiny"}, func(s sandbox.Step) {
				if s.Note != "" {
					notes = append(notes, s.Name+": "+s.Note)
				}
			})
			if fails {
				enginefake.WantError(t, err, sandbox.ErrBootFailed, "boot: ", "panicked: Fatal exception, after Oops: stack guard page")
			} else if err != nil {
				t.Fatal(err)
			}
			if len(notes) != 1 || !strings.Contains(notes[0], "Oops: stack guard page: 0000") || strings.ContainsRune(notes[0], 0x1b) {
				t.Errorf("the notes are %q", notes)
			}
			if !fails {
				h.Fork(e, "a", 1)
				return
			}
			h.Empty()
			enginefake.Eventually(t, "return of all descriptors", func() bool { return enginefake.OpenFiles(t) <= before })
		})
	}
}

func TestACancelledCreationLeavesNothing(t *testing.T) {
	for step, fault := range map[string]string{sandbox.StepBoot: "boot-silent", sandbox.StepWarm: "warm-hang", sandbox.StepQuiesce: "", sandbox.StepSave: "save-hang"} {
		t.Run(step, func(t *testing.T) {
			h := enginefake.NewHost(t)
			e := h.Open()
			if fault != "" {
				h.Fault(fault, 1)
			}
			wish := errors.New("changed my mind")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			_, err := e.CreateSnapshot(ctx, sandbox.CreateRequest{Tag: "a", Image: "tiny"}, func(s sandbox.Step) {
				if s.Name == step && !s.Done {
					cancel(wish)
				}
			})
			if !errors.Is(err, wish) {
				t.Errorf("got %v", err)
			}
			if s := h.Stored(); s != "" {
				t.Errorf("the store holds %s", s)
			}
			h.Empty()
		})
	}
}

func TestATagIsTakenWhileItIsWritten(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	again := func(s sandbox.Step) {
		if s.Name != sandbox.StepWarm || s.Done {
			return
		}
		_, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "tiny"}, nil)
		enginefake.WantError(t, err, sandbox.ErrConflict, "being written")
		_, err = e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1})
		enginefake.WantError(t, err, sandbox.ErrConflict, "being written")
		enginefake.WantError(t, e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{}), sandbox.ErrConflict, "being written")
		if i, err := e.SnapshotInfo(t.Context(), "a"); err != nil || i.Status != sandbox.SnapshotWriting {
			t.Errorf("while written: %+v, %v", i, err)
		}
	}
	if _, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "tiny"}, again); err != nil {
		t.Fatal(err)
	}
}

func TestDamageIsFound(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	s := h.Snapshot(e, "a")
	enginefake.Eventually(t, "digests", func() bool { i, _ := e.SnapshotInfo(t.Context(), "a"); return i.DigestsReady })
	write := func(path string, at int64, b string) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte(b), at); err != nil {
			t.Fatal(err)
		}
	}
	write(s.MemoryFile, layer.ContentOffset+1<<20+3, "M")
	r, err := e.VerifySnapshot(t.Context(), "a")
	if err != nil || r.OK() || r.Damaged[0].File != "layers/"+filepath.Base(s.MemoryFile) || r.Damaged[0].Offset != layer.ContentOffset+1<<20 {
		t.Errorf("got %+v, %v", r, err)
	}
	write(filepath.Join(s.Dir, "vmstate"), 0, "T")
	_, err = e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 2})
	enginefake.WantError(t, err, storeerr.ErrNotRestorable, "file vmstate changed since it was written")
	if err := os.Truncate(s.MemoryFile, 5000); err != nil {
		t.Fatal(err)
	}
	_, err = e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 2})
	enginefake.WantError(t, err, storeerr.ErrNotRestorable, "file layers/", "it has 5000 bytes, want")
	if i, err := e.SnapshotInfo(t.Context(), "a"); err != nil || i.Status != sandbox.SnapshotFailed || !strings.Contains(i.Warning, "layers/") {
		t.Errorf("got %+v, %v", i, err)
	}
	if err := e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{}); err != nil {
		t.Errorf("delete a damaged snapshot: %v", err)
	}
	h.Empty()
}

func TestASnapshotInUseIsNotDeleted(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sb := h.Fork(e, "a", 1)[0]
	enginefake.WantError(t, e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{}), sandbox.ErrConflict, sb.ID)
	enginefake.WantError(t, e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{Force: true, Cascade: true}), sandbox.ErrInvalid)
	enginefake.WantError(t, e.DeleteSnapshot(t.Context(), "b", sandbox.DeleteOptions{}), sandbox.ErrNotFound)
	enginefake.WantError(t, e.DeleteSnapshot(t.Context(), "../b", sandbox.DeleteOptions{}), sandbox.ErrInvalid)
	if err := e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if got := h.Eval(e, sb.ID, "sandbox_id"); got != sb.ID {
		t.Errorf("after the deletion it says %q", got)
	}
	_, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1})
	enginefake.WantError(t, err, sandbox.ErrNotFound, "a")
}

// Rewriting a root file system given by path changes neither the snapshot nor its children, nor
// their branches.
func TestTheRootByPathIsTheSnapshotsOwn(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	dir := t.TempDir()
	kernel, root := filepath.Join(dir, "vmlinux"), filepath.Join(dir, "root.img")
	for path, text := range map[string]string{kernel: "a kernel", root: "a root"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Kernel: kernel, Rootfs: root, MemoryMiB: enginefake.Shape.MemoryMiB}, nil); err != nil {
		t.Fatal(err)
	}
	sb := h.Fork(e, "a", 1)[0]
	f, err := os.OpenFile(root, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("SPOILT"), 0); err != nil {
		t.Fatal(err)
	}
	if err := h.Branch(e, sb.ID, "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.CompactSnapshot(t.Context(), "b", "c", nil); err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"a", "b", "c"} {
		got, err := os.ReadFile(filepath.Join(h.Snapshots(), tag, snapshot.DiskFile(0)))
		if err != nil || string(got) != "a root" {
			t.Errorf("snapshot %s has %q, %v", tag, got, err)
		}
	}
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", sb.PID))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if to, _ := os.Readlink(fd); to == root {
			t.Errorf("the child has %s open", to)
		}
	}
}
