package op_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/store/receipt"
)

// onDisk waits until n receipts are written.
func onDisk(h *enginefake.Host, n int) {
	h.T.Helper()
	enginefake.Eventually(h.T, "written receipts", func() bool {
		found, _ := filepath.Glob(filepath.Join(h.Cfg.StoreDir, "receipts", "r*.json"))
		return len(found) == n
	})
}

func stepNames(steps []receipt.Step) string {
	var out []string
	for _, s := range steps {
		out = append(out, s.Name)
	}
	return strings.Join(out, " ")
}

func stepSum(steps []receipt.Step) (us int64) {
	for _, s := range steps {
		us += s.TookUS
	}
	return us
}

func TestEveryForkLeavesAReceipt(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	made := h.Snapshot(e, "a")
	sbs := h.Fork(e, "a", 3)
	seen := map[string]bool{}
	for _, b := range sbs {
		r := enginefake.Receipt(h, e, receipt.OfSandbox, b.ID)
		if r.Op != receipt.Fork || r.Error != "" || r.Parent == nil || r.Parent.Tag != "a" || r.Parent.ContentHash != made.ContentHash || len(r.Parent.Layers) == 0 {
			t.Errorf("%+v", r)
		}
		if !slices.ContainsFunc(r.Parent.Layers, func(l receipt.Layer) bool { return l.Kind == "state" && strings.HasPrefix(l.Digest, "sha256:") }) {
			t.Errorf("layers %+v", r.Parent.Layers)
		}
		i, g := r.Identity, r.Guest
		if i == nil || i.Index != b.Index || i.Parent != "a" || i.Hostname != b.ID || i.MachineID != h.Eval(e, b.ID, "machine_id") || i.EntropyBytes != launch.EntropyBytes {
			t.Errorf("identity %+v", i)
		}
		if g == nil || !g.KernelReseeded || g.RandomDigest != h.Eval(e, b.ID, "entropy") { // the fake's draw
			t.Errorf("guest %+v", g)
		}
		for _, v := range []string{i.MachineID, i.GenerationID, g.RandomDigest} {
			if len(v) < 32 || seen[v] {
				t.Errorf("%q comes twice", v)
			}
			seen[v] = true
		}
		if got := stepNames(r.Steps); got != "turn restore turn populate start identity journal" || stepSum(r.Steps) > r.TookUS || r.TookUS < b.Ready.Microseconds() {
			t.Errorf("%s: %d of %d us, ready after %s", got, stepSum(r.Steps), r.TookUS, b.Ready)
		}
	}
	// They outlive their sandboxes and the daemon.
	for _, b := range sbs {
		if err := e.Kill(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
	}
	onDisk(h, 4)
	h.Close(e)
	e = h.Open()
	for _, b := range sbs {
		if r := enginefake.Receipt(h, e, receipt.OfSandbox, b.ID); r.Identity.Index != b.Index || r.Guest.RandomDigest == "" {
			t.Errorf("of a child that was killed: %+v", r)
		}
	}
	_, err := e.Receipt(receipt.OfSandbox, "sb-none")
	enginefake.WantError(t, err, sandbox.ErrNotFound, "sb-none")
}

// A child that could not be made unique is not running, and its receipt names the missing step.
func TestAFailedChildLeavesAReceipt(t *testing.T) {
	for fault, c := range map[string]struct {
		text     string
		answered bool
	}{
		"identity-clone": {"random state was not reseeded", true},
		"identity-hang":  {"guest did not confirm its identity after", false},
		"mute":           {"guest did not confirm its identity after 1s", false},
		"restore-fail":   {"KVM said no", false},
	} {
		t.Run(fault, func(t *testing.T) {
			h := enginefake.NewHost(t)
			h.Cfg.IdentityTimeout = time.Second
			e := h.Open()
			h.Snapshot(e, "a")
			h.Fault(fault, 1)
			began := time.Now()
			res, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 2})
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			if l := e.List(); len(l) != 1 || l[0].Status != sandbox.StatusRunning {
				t.Errorf("listed: %+v", l)
			}
			all, err := e.Receipts(receipt.Filter{Op: receipt.Fork})
			if err != nil || len(all) != 2 {
				t.Fatalf("%+v, %v", all, err)
			}
			bad := all[slices.IndexFunc(all, func(r receipt.Receipt) bool { return r.Error != "" })]
			if !strings.Contains(bad.Error, c.text) || bad.Error != firstError(res).Error() || (bad.Guest != nil) != c.answered || c.answered && bad.Guest.KernelReseeded {
				t.Errorf("%+v, guest %+v", bad, bad.Guest)
			}
			if fault == "mute" {
				enginefake.WantError(t, firstError(res), sandbox.ErrTimeout)
			}
		})
	}
}

func TestSnapshotsBranchesAndRollbacksLeaveReceipts(t *testing.T) {
	h, e, sb := rollbackHost(t)
	r := enginefake.Receipt(h, e, receipt.OfSnapshot, "d")
	if r.Op != receipt.Snapshot || r.Image == nil || r.Image.Name != "disky" || stepNames(r.Steps) != "boot warm quiesce save" || r.Made == nil || r.Made.ContentHash == "" {
		t.Errorf("snapshot: %+v", r)
	}
	made := r.Made.ContentHash
	r = enginefake.Receipt(h, e, receipt.OfSnapshot, "b")
	if r.Op != receipt.Branch || r.Sandbox != sb.ID || r.Parent.Tag != "d" || r.Parent.ContentHash != made || r.Made == nil || len(r.Made.Layers) < 3 ||
		!reflect.DeepEqual(*r.Capture, receipt.Capture{
			Mode: "live", Mechanism: "wp-async", PauseUS: 2000, Rounds: 1, Bytes: 4096, PausedBytes: 4096, PauseSteps: []receipt.Step{{Name: "copy", TookUS: 2000}},
		}) {
		t.Errorf("branch: %+v, %+v", r, r.Capture)
	}
	if got := stepNames(r.Steps); got != "turn capture write commit" {
		t.Errorf("steps: %s", got)
	}
	branched := r.Made.ContentHash
	if _, err := e.Rollback(t.Context(), sb.ID, "b"); err != nil {
		t.Fatal(err)
	}
	r = enginefake.Receipt(h, e, receipt.OfSandbox, sb.ID)
	if r.Op != receipt.Rollback || r.Before != "d" || r.Parent.Tag != "b" || r.Parent.ContentHash != branched || r.Identity.Index != 2 || r.Identity.Parent != "d" || !r.Guest.KernelReseeded {
		t.Errorf("rollback: %+v", r)
	}
	if got := stepNames(r.Steps); got != "turn restore populate start identity exchange end" {
		t.Errorf("steps: %s", got)
	}
	h.Fault("restore-fail", 1)
	if _, err := e.Rollback(t.Context(), sb.ID, "d"); err == nil {
		t.Error("it did not fail")
	}
	if r = enginefake.Receipt(h, e, receipt.OfSandbox, sb.ID); r.Op != receipt.Rollback || !strings.Contains(r.Error, "KVM said no") || r.Before != "b" {
		t.Errorf("failed rollback: %+v", r)
	}
	h.Fault("captured-fail", 1)
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "lost"}); err == nil {
		t.Error("it did not fail")
	}
	if err := h.Branch(e, sb.ID, "mended"); err != nil { // finishes the work of the failed one
		t.Fatal(err)
	}
	h.Fault("captured-fail", 1)
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "later", NoWait: true}); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "receipt of a branch that nobody waited for", func() bool {
		r, err := e.Receipt(receipt.OfSnapshot, "later")
		return err == nil && strings.Contains(r.Error, "no space left") && r.Made == nil
	})
	if r = enginefake.Receipt(h, e, receipt.OfSnapshot, "lost"); !strings.Contains(r.Error, "no space left") {
		t.Errorf("failed branch: %+v", r)
	}
	all, err := e.Receipts(receipt.Filter{Kind: receipt.OfSandbox, Of: sb.ID})
	if err != nil || len(all) != 3 || all[2].Op != receipt.Fork {
		t.Errorf("of the sandbox: %+v, %v", all, err)
	}
}

// A daemon that ended before writing its receipts left a journal. The next daemon recovers them
// from it.
func TestReceiptsThatWereNotWrittenAreRecovered(t *testing.T) {
	h, e, sb := rollbackHost(t)
	if _, err := e.Rollback(t.Context(), sb.ID, "b"); err != nil {
		t.Fatal(err)
	}
	other := h.Fork(e, "d", 1)[0]
	h.Close(e)
	// As if the last two had not been written.
	dir := filepath.Join(h.Cfg.StoreDir, "receipts")
	for _, of := range []string{sb.ID, other.ID} {
		found, _ := filepath.Glob(filepath.Join(dir, "*.sandbox."+of+".*.json"))
		if len(found) == 0 {
			t.Fatalf("no receipt of %s on disk", of)
		}
		os.Remove(found[len(found)-1])
	}
	for range 2 { // it happens once
		e = h.Open()
		for of, op := range map[string]receipt.Op{sb.ID: receipt.Rollback, other.ID: receipt.Fork} {
			r := enginefake.Receipt(h, e, receipt.OfSandbox, of)
			if !r.Recovered || r.Op != op || r.Parent.ContentHash == "" || r.Identity.Hostname != of || r.Guest != nil {
				t.Errorf("%+v", r)
			}
			if all, err := e.Receipts(receipt.Filter{Of: of}); err != nil || len(all) != map[receipt.Op]int{receipt.Rollback: 2, receipt.Fork: 1}[op] {
				t.Errorf("%d receipts of %s, %v", len(all), of, err)
			}
		}
		h.Close(e)
	}
}
