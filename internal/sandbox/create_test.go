package sandbox

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/layer"
)

func TestASnapshotIsCreatedStepByStep(t *testing.T) {
	h := newHost(t)
	e := h.open()
	var steps []string
	s, err := e.CreateSnapshot(t.Context(), CreateRequest{Tag: "a", Image: "tiny", Warm: "x = 1"}, func(s Step) {
		if s.Done {
			steps = append(steps, s.Name)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(steps, []string{StepBoot, StepWarm, StepQuiesce, StepSave}) {
		t.Errorf("steps are %v", steps)
	}
	if s.Status != SnapshotReady || s.Image != "tiny" || s.Shape != fakeShape || s.MemoryLogicalBytes != 64<<20 || s.VMStateBytes != 9 ||
		!slices.Equal(s.Languages, []string{"python"}) || len(s.Steps) != 4 {
		t.Errorf("got %+v", s)
	}
	if s.MemoryPhysicalBytes >= 1<<20 {
		t.Errorf("the memory takes %d bytes, want a sparse file", s.MemoryPhysicalBytes)
	}
	h.empty()
	eventually(t, "digests", func() bool {
		r, err := e.VerifySnapshot(t.Context(), "a")
		return err == nil && r.OK() && r.Files == 4
	})
	// The image may go: the snapshot has all it needs.
	if err := os.RemoveAll(h.cfg.Images.(images).dir); err != nil {
		t.Fatal(err)
	}
	h.fork(e, "a", 1)
}

func TestAParentMayBeAKernelAndARootFileSystem(t *testing.T) {
	h := newHost(t)
	e := h.open()
	dir := h.cfg.Images.(images).dir
	s, err := e.CreateSnapshot(t.Context(), CreateRequest{Tag: "a", Kernel: dir + "/vmlinux", Rootfs: dir + "/root", MemoryMiB: 64}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Image != "" || !strings.Contains(s.Cmdline, "root=/dev/vda") || len(s.Languages) != 0 {
		t.Errorf("got %+v", s)
	}
	h.fork(e, "a", 1)
}

func TestWhatCannotBeASnapshotIsRefused(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "taken")
	dir := h.cfg.Images.(images).dir
	for name, c := range map[string]struct {
		req  CreateRequest
		kind error
		text string
	}{
		"bad tag":             {CreateRequest{Tag: "../x", Image: "tiny"}, ErrInvalid, "bad snapshot tag"},
		"tag exists":          {CreateRequest{Tag: "taken", Image: "tiny"}, ErrConflict, "taken"},
		"no such image":       {CreateRequest{Tag: "b", Image: "huge"}, ErrNotFound, "huge"},
		"nothing named":       {CreateRequest{Tag: "b"}, ErrInvalid, "no image"},
		"both named":          {CreateRequest{Tag: "b", Image: "tiny", Kernel: "k", Rootfs: "r"}, ErrInvalid, "not both"},
		"kernel alone":        {CreateRequest{Tag: "b", Kernel: "/k"}, ErrInvalid, "go together"},
		"kernel not there":    {CreateRequest{Tag: "b", Kernel: "/nowhere", Rootfs: dir + "/root"}, ErrInvalid, "/nowhere is not a file"},
		"kernel is no kernel": {CreateRequest{Tag: "b", Kernel: dir + "/root", Rootfs: dir + "/root"}, ErrBootFailed, "no kernel"},
		"too much memory":     {CreateRequest{Tag: "b", Image: "tiny", MemoryMiB: 1 << 30}, ErrInvalid, "memory_mib"},
		"too many vCPUs":      {CreateRequest{Tag: "b", Image: "tiny", VCPUs: 9}, ErrInvalid, "vcpus"},
		"warm-up raises":      {CreateRequest{Tag: "b", Image: "tiny", Warm: "raise"}, ErrInvalid, "Traceback: line 1"},
		"more than the host":  {CreateRequest{Tag: "b", Image: "tiny", MemoryMiB: 128 << 10}, ErrNoMemory, "131072 MiB are needed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := e.CreateSnapshot(t.Context(), c.req, nil)
			wantError(t, err, c.kind, c.text)
			if s := h.stored(); s != "taken" {
				t.Errorf("the store holds %s", s)
			}
		})
	}
	h.empty()
}

func TestAFailureAtAStepLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		spoil string
		kind  error
		texts []string
	}{
		{"spawn", errAny, []string{"no KVM today"}},
		{"boot-panic", ErrBootFailed, []string{"boot: ", "kernel panicked: no working init found", "the console's last lines:\nbooting with console=ttyS0"}},
		{"boot-silent", ErrBootFailed, []string{"no ready signal within 500ms", "waiting for nothing"}},
		{"warm-hang", ErrBootFailed, []string{"warm: not warm within"}},
		{"quiesce-fail", ErrBootFailed, []string{"quiesce: guest: sync: the disk hums"}},
		{"save-full", ErrNoSpace, []string{"save: ", "no space left on device"}},
	} {
		t.Run(c.spoil, func(t *testing.T) {
			h := newHost(t)
			switch c.spoil {
			case "boot-silent":
				h.cfg.BootWait = 500 * time.Millisecond
			case "warm-hang":
				h.cfg.BootWait = 3 * time.Second // the boot has to be quicker
			}
			e := h.open()
			h.spoil(c.spoil, 1)
			before := openFiles(t)
			_, err := e.CreateSnapshot(t.Context(), CreateRequest{Tag: "a", Image: "tiny"}, nil)
			wantError(t, err, c.kind, c.texts...)
			if err != nil && bytes.ContainsRune([]byte(err.Error()), 0x1b) {
				t.Error("the guest's escape codes reach the terminal")
			}
			if s := h.stored(); s != "" {
				t.Errorf("the store holds %s", s)
			}
			if l, _ := e.ListSnapshots(t.Context()); len(l) != 0 {
				t.Errorf("listed: %v", l)
			}
			h.empty()
			eventually(t, "return of all descriptors", func() bool { return openFiles(t) <= before })
		})
	}
}

// errAny is any error.
var errAny = anyError{}

type anyError struct{}

func (anyError) Error() string { return "any error" }

func TestACancelledCreationLeavesNothing(t *testing.T) {
	for step, spoil := range map[string]string{StepBoot: "boot-silent", StepWarm: "warm-hang", StepQuiesce: "", StepSave: "save-hang"} {
		t.Run(step, func(t *testing.T) {
			h := newHost(t)
			e := h.open()
			if spoil != "" {
				h.spoil(spoil, 1)
			}
			wish := errors.New("changed my mind")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			_, err := e.CreateSnapshot(ctx, CreateRequest{Tag: "a", Image: "tiny"}, func(s Step) {
				if s.Name == step && !s.Done {
					cancel(wish)
				}
			})
			if !errors.Is(err, wish) {
				t.Errorf("got %v", err)
			}
			if s := h.stored(); s != "" {
				t.Errorf("the store holds %s", s)
			}
			h.empty()
		})
	}
}

func TestATagIsTakenWhileItIsWritten(t *testing.T) {
	h := newHost(t)
	e := h.open()
	again := func(s Step) {
		if s.Name != StepWarm || s.Done {
			return
		}
		_, err := e.CreateSnapshot(t.Context(), CreateRequest{Tag: "a", Image: "tiny"}, nil)
		wantError(t, err, ErrConflict, "being written")
		_, err = e.Fork(t.Context(), ForkRequest{Tag: "a", N: 1})
		wantError(t, err, ErrConflict, "being written")
		wantError(t, e.DeleteSnapshot(t.Context(), "a", DeleteOptions{}), ErrConflict, "being written")
		if i, err := e.SnapshotInfo(t.Context(), "a"); err != nil || i.Status != SnapshotWriting {
			t.Errorf("while written: %+v, %v", i, err)
		}
	}
	if _, err := e.CreateSnapshot(t.Context(), CreateRequest{Tag: "a", Image: "tiny"}, again); err != nil {
		t.Fatal(err)
	}
}

func TestDamageIsFound(t *testing.T) {
	h := newHost(t)
	e := h.open()
	s := h.snapshot(e, "a")
	eventually(t, "digests", func() bool { i, _ := e.SnapshotInfo(t.Context(), "a"); return i.DigestsReady })
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
	_, err = e.Fork(t.Context(), ForkRequest{Tag: "a", N: 2})
	wantError(t, err, ErrNotRestorable, "file vmstate changed since it was written")
	if err := os.Truncate(s.MemoryFile, 5000); err != nil {
		t.Fatal(err)
	}
	_, err = e.Fork(t.Context(), ForkRequest{Tag: "a", N: 2})
	wantError(t, err, ErrNotRestorable, "file layers/", "it has 5000 bytes, want")
	if i, err := e.SnapshotInfo(t.Context(), "a"); err != nil || i.Status != SnapshotFailed || !strings.Contains(i.Warning, "layers/") {
		t.Errorf("got %+v, %v", i, err)
	}
	if err := e.DeleteSnapshot(t.Context(), "a", DeleteOptions{}); err != nil {
		t.Errorf("delete a damaged snapshot: %v", err)
	}
	h.empty()
}

func TestASnapshotInUseIsNotDeleted(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	box := h.fork(e, "a", 1)[0]
	wantError(t, e.DeleteSnapshot(t.Context(), "a", DeleteOptions{}), ErrConflict, box.ID)
	wantError(t, e.DeleteSnapshot(t.Context(), "a", DeleteOptions{Force: true, Cascade: true}), ErrInvalid)
	wantError(t, e.DeleteSnapshot(t.Context(), "b", DeleteOptions{}), ErrNotFound)
	wantError(t, e.DeleteSnapshot(t.Context(), "../b", DeleteOptions{}), ErrInvalid)
	if err := e.DeleteSnapshot(t.Context(), "a", DeleteOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if got := h.eval(e, box.ID, "sandbox_id"); got != box.ID {
		t.Errorf("after the deletion it says %q", got)
	}
	_, err := e.Fork(t.Context(), ForkRequest{Tag: "a", N: 1})
	wantError(t, err, ErrNotFound, "a")
}
