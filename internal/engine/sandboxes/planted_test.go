package sandboxes_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/sys/hostproc"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// victim returns a home directory a daemon must not touch.
func victim(t *testing.T) (home string, unharmed func()) {
	t.Helper()
	home = t.TempDir()
	write := func(name string) {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := []string{"thesis.tex", "work/vm.json", "work/vmm.log", "v00000001/vm.json", "v00000002-disk1", "sb-0a1b2c3d-0001/ended-x"}
	for _, name := range all {
		write(name)
	}
	return home, func() {
		t.Helper()
		for _, name := range all {
			if b, err := os.ReadFile(filepath.Join(home, name)); err != nil || string(b) != name {
				t.Errorf("the victim's %s: %q, %v", name, b, err)
			}
		}
	}
}

func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}

// At each level of the run directory and of the store, a link to a user's home is not followed, and
// files not made by a daemon stay.
func TestPlantedLinksAreNotFollowed(t *testing.T) {
	for _, c := range []struct {
		name    string
		at      func(h *enginefake.Host) string // the link
		to      string                          // below the home
		refused string                          // if empty, the daemon starts and leaves it alone
	}{
		{"vm", func(h *enginefake.Host) string { return h.Cfg.RunDir + "/vm" }, "", "is a link"},
		{"a VM's directory", func(h *enginefake.Host) string { return h.Cfg.RunDir + "/vm/v00000007" }, "work", ""},
		{"what is no VM's directory", func(h *enginefake.Host) string { return h.Cfg.RunDir + "/vm/mine" }, "work", ""},
		{"a VM's journal", func(h *enginefake.Host) string { return h.Cfg.RunDir + "/vm/v00000007/vm.json" }, "thesis.tex", ""},
		{"a sandbox's journal", func(h *enginefake.Host) string { return h.Cfg.RunDir + "/vm/v00000007/sandbox.json.tmp" }, "thesis.tex", ""},
		{"a VM's socket", func(h *enginefake.Host) string { return h.Cfg.RunDir + "/vm/v00000007/control.sock" }, "thesis.tex", ""},
		{"family", func(h *enginefake.Host) string { return h.Cfg.RunDir + "/family" }, "", "is a link"},
		{"a family", func(h *enginefake.Host) string { return h.Cfg.RunDir + "/family/sb-0a1b2c3d-0001" }, "work", ""},
		{"the lock", func(h *enginefake.Host) string { return h.Cfg.RunDir + "/lock" }, "thesis.tex", "too many levels"},
		{"the store's lock", func(h *enginefake.Host) string { return h.Cfg.StoreDir + "/lock" }, "thesis.tex", "too many levels"},
		{"a disk", func(h *enginefake.Host) string { return h.Cfg.StoreDir + "/own/v00000007-disk1" }, "thesis.tex", ""},
		{"what is no disk", func(h *enginefake.Host) string { return h.Cfg.StoreDir + "/own/mine" }, "thesis.tex", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := enginefake.NewHost(t)
			home, unharmed := victim(t)
			at := c.at(h)
			link(t, filepath.Join(home, c.to), at)
			e, err := engine.Open(t.Context(), h.Cfg)
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("got %v, want %q", err, c.refused)
			}
			if err == nil {
				h.Close(e)
			}
			unharmed()
			if _, err := os.Lstat(at); err != nil {
				t.Errorf("the link: %v", err)
			}
		})
	}
}

// bystander starts a process of this user that no daemon knows.
func bystander(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

func refOf(t *testing.T, pid int, dir string) client.Ref {
	t.Helper()
	start, err := hostproc.StartTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	return client.Ref{Dir: dir, PID: pid, StartTime: start}
}

func plant(t *testing.T, path string, v any) {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A journal cannot make the daemon end a process that is not its VMM, listed as a sandbox or not,
// nor another of its VMMs.
func TestAPlantedJournalEndsNoProcess(t *testing.T) {
	for _, listed := range []bool{false, true} {
		h := enginefake.NewHost(t)
		e := h.Open()
		h.Snapshot(e, "a")
		sb := h.Fork(e, "a", 1)[0]
		h.Close(e)
		sleeper := bystander(t)
		for i, pid := range []int{sleeper.Process.Pid, sb.PID} {
			dir := filepath.Join(h.Cfg.RunDir, "vm", []string{"v00000070", "v00000071"}[i])
			plant(t, filepath.Join(dir, vmproc.Journal), vmproc.Record{Version: vmproc.JournalVersion, Ref: refOf(t, pid, dir), Shape: enginefake.Shape, CID: 77})
			if err := os.WriteFile(filepath.Join(dir, client.ConsoleLog), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if listed {
				plant(t, filepath.Join(dir, vmproc.SandboxJournal), sandboxes.Record{Version: vmproc.JournalVersion, Info: sandbox.Info{ID: "sb-0a1b2c3d-000" + []string{"1", "2"}[i], Status: sandbox.StatusRunning}})
			}
		}
		e = h.Open()
		if l := e.List(); len(l) != 1 || l[0].ID != sb.ID || l[0].Status != sandbox.StatusRunning {
			t.Errorf("listed %v: adopted %+v", listed, l)
		}
		for _, pid := range []int{sleeper.Process.Pid, sb.PID} {
			if st, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || strings.Contains(string(st), ") Z ") {
				t.Errorf("listed %v: process %d was ended", listed, pid)
			}
		}
		if err := e.Kill(t.Context(), sb.ID); err != nil {
			t.Error(err)
		}
		h.Close(e)
		os.RemoveAll(filepath.Join(h.Cfg.RunDir, "vm", "v00000070")) // otherwise the end of the test would do this itself
		os.RemoveAll(filepath.Join(h.Cfg.RunDir, "vm", "v00000071"))
	}
}

// A journal cannot make the daemon remove files by naming them.
func TestAPlantedJournalRemovesNoFile(t *testing.T) {
	for name, fault := range map[string]func(home string, r *sandboxes.Record){
		"its disk": func(home string, r *sandboxes.Record) {
			r.Disks = []vmproc.Disk{{Index: 1, Overlay: home + "/thesis.tex"}}
		},
		"a frozen overlay": func(home string, r *sandboxes.Record) {
			r.Disks = []vmproc.Disk{{Index: 1, Frozen: []string{home + "/v00000002-disk1"}}}
		},
		"its next disk": func(home string, r *sandboxes.Record) {
			r.Disks = []vmproc.Disk{{Index: 1, Next: home + "/thesis.tex"}}
		},
		"a way out": func(home string, r *sandboxes.Record) {
			r.Disks = []vmproc.Disk{{Index: 1, Overlay: home + "/own/../thesis.tex"}}
		},
		"its id": func(home string, r *sandboxes.Record) { r.Info.ID = "../../.." + home + "/work" },
	} {
		t.Run(name, func(t *testing.T) {
			h := enginefake.NewHost(t)
			home, unharmed := victim(t)
			dir := filepath.Join(h.Cfg.RunDir, "vm", "v00000070")
			rec := sandboxes.Record{Version: vmproc.JournalVersion, Info: sandbox.Info{ID: "sb-0a1b2c3d-0001", Status: sandbox.StatusFailed}}
			fault(home, &rec)
			plant(t, filepath.Join(dir, vmproc.Journal), vmproc.Record{Version: vmproc.JournalVersion, Ref: client.Ref{PID: 1 << 30}})
			plant(t, filepath.Join(dir, vmproc.SandboxJournal), rec)
			e := h.Open()
			for _, i := range e.List() {
				if err := e.Kill(t.Context(), i.ID); err != nil {
					t.Error(err)
				}
			}
			unharmed()
		})
	}
}

// Files that an engine finds and did not make stay, and the VM next to them is removed.
func TestOnlyWhatADaemonMakesIsRemoved(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sb := h.Fork(e, "a", 1)[0]
	dir, _ := h.Journal(sb.ID)
	note := filepath.Join(dir, "note.txt")
	keep := filepath.Join(h.Cfg.RunDir, "vm", "keep", "note.txt")
	plant(t, note, "mine")
	plant(t, keep, "mine")
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	h.Close(e)
	h.Open()
	for _, path := range []string{note, keep} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("of the VM are left %v", names)
	}
	if unix.Kill(sb.PID, 0) == nil {
		t.Error("its VM runs")
	}
}
