package e2e

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// The receipts of a fork, a branch and a rollback match the guests' own values.
func TestReceipts(t *testing.T) {
	d := shared(t)
	d.unchanged()
	parent, err := d.c.Snapshot(t.Context(), parentTag)
	if err != nil {
		t.Fatal(err)
	}
	made := d.snapshotReceipt(parentTag)
	if made.Op != api.ReceiptSnapshot || made.Made == nil || made.Made.ContentHash != parent.ContentHash || made.Image == nil || made.Image.Digest != parent.ImageDigest {
		t.Errorf("of the parent: %+v", made)
	}
	sbs := d.fork(2)
	seen := map[string]bool{}
	for _, sb := range sbs {
		r := d.sandboxReceipt(sb.ID)
		if r.Op != api.ReceiptFork || r.Error != "" || r.Parent.ContentHash != parent.ContentHash || r.Identity.Index != sb.Index {
			t.Errorf("%s: %+v", sb.ID, r)
		}
		kinds := map[string]bool{}
		for _, l := range r.Parent.Layers {
			kinds[l.Kind] = true
		}
		if !kinds["memory"] || !kinds["state"] || !kinds["disk"] {
			t.Errorf("%s: layers %+v", sb.ID, r.Parent.Layers)
		}
		d.proves(sb.ID, r)
		d.wentTheShortWay(sb.ID, r)
		for _, v := range []string{r.Guest.RandomDigest, r.Guest.BootID, r.Identity.MachineID, r.Identity.GenerationID} {
			if seen[v] || v == "" {
				t.Errorf("%q comes twice", v)
			}
			seen[v] = true
		}
		// The parent's clock did not advance in the snapshot.
		if age := time.Since(time.Unix(parent.CreatedAtUnix, 0)); math.Abs(r.Guest.ClockStepMS-float64(age.Milliseconds())) > 30_000 {
			t.Errorf("%s: its clock was moved by %.0f ms, the snapshot is %s old", sb.ID, r.Guest.ClockStepMS, age)
		}
	}
	id := sbs[0].ID
	res := d.branch(id, api.BranchRequest{Tag: "told"})
	r := d.snapshotReceipt("told")
	if r.Op != api.ReceiptBranch || r.Sandbox != id || r.Parent.Tag != parentTag || r.Capture.PauseMS != *res.PauseMS || r.Capture.Bytes != res.BytesWritten || r.Capture.Rounds != res.Rounds {
		t.Errorf("of the branch: %+v, %+v", r, r.Capture)
	}
	hash := r.Made.ContentHash
	d.rollback(id, "told")
	r = d.sandboxReceipt(id)
	if r.Op != api.ReceiptRollback || r.Before != parentTag || r.Parent.ContentHash != hash || seen[r.Guest.RandomDigest] {
		t.Errorf("of the rollback: %+v", r)
	}
	d.proves(id, r)
	if r.Identity.Way != "port" { // a branch has its parent's agent
		t.Errorf("of the rollback: the identity went by %q", r.Identity.Way)
	}
	if err := d.c.Kill(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	all, err := d.c.ListReceipts(t.Context(), client.ReceiptFilter{Sandbox: id})
	if err != nil || len(all) != 2 || all[0].Op != api.ReceiptRollback || all[1].Op != api.ReceiptFork {
		t.Errorf("of a sandbox that was killed: %+v, %v", all, err)
	}
	d.sub("for people", func(t *testing.T) {
		code, out, errs := d.cli("inspect", id, "--all")
		for _, want := range []string{"rollback of sandbox " + id, "fork of sandbox " + id, "kernel", "reseeded before its next request", hash} {
			if !strings.Contains(out, want) {
				t.Errorf("inspect does not say %q", want)
			}
		}
		if t.Logf("%s", out); code != 0 {
			t.Errorf("exit code %d, %s", code, errs)
		}
	})
	_, err = d.c.SandboxReceipt(t.Context(), "sb-none")
	wantError(t, err, api.CodeNotFound, "sb-none")
}

// wentTheShortWay checks a child of a snapshot made by this build. The child must have received its
// identity on the identity port, and its working set must have been populated before it ran.
func (d *daemon) wentTheShortWay(id string, r api.Receipt) {
	d.t.Helper()
	if r.Identity.Way != "port" {
		d.t.Errorf("%s: the identity went by %q, want its port", id, r.Identity.Way)
	}
	recorded := 0 // for the start until ready, a first program, and an evaluation if there is an interpreter
	for _, l := range r.Parent.Layers {
		if l.Kind == "working_set" {
			recorded++
		}
	}
	if recorded < 2 || r.VM.PopulatedPages == 0 {
		d.t.Errorf("%s: %d working sets were recorded, want 2 or 3; %d pages of the first were mapped", id, recorded, r.VM.PopulatedPages)
	}
}

// proves checks a receipt against the guest's own values.
func (d *daemon) proves(id string, r api.Receipt) {
	d.t.Helper()
	want := []string{r.Identity.Hostname, r.Identity.MachineID, r.Guest.BootID}
	if got := d.list(id, "socket.gethostname()", "open('/etc/machine-id').read().strip()", "open('/proc/sys/kernel/random/boot_id').read().strip()"); !slices.Equal(got, want) {
		d.t.Errorf("%s: it has %q, its receipt says %q", id, got, want)
	}
	if !r.Guest.KernelReseeded || len(r.Guest.RandomDigest) != 64 || len(r.Identity.GenerationID) != 32 {
		d.t.Errorf("%s: guest %+v, identity %+v", id, r.Guest, r.Identity)
	}
	python := slices.IndexFunc(r.Guest.Interpreters, func(i api.ReceiptInterpreter) bool { return i.Language == "python" })
	if python < 0 || !r.Guest.Interpreters[python].Later { // it was idle in the parent
		d.t.Errorf("%s: interpreters %+v", id, r.Guest.Interpreters)
	}
	sum := 0.0
	for _, s := range r.Steps {
		sum += s.TookMS
	}
	if len(r.Steps) < 5 || sum > r.TookMS+1 || r.TookMS <= 0 {
		d.t.Errorf("%s: %.1f ms of steps %+v in %.1f ms", id, sum, r.Steps, r.TookMS)
	}
}

func (d *daemon) sandboxReceipt(id string) api.Receipt {
	d.t.Helper()
	r, err := d.c.SandboxReceipt(d.t.Context(), id)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

func (d *daemon) snapshotReceipt(tag string) api.Receipt {
	d.t.Helper()
	r, err := d.c.SnapshotReceipt(d.t.Context(), tag)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}
