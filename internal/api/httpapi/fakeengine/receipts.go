package fakeengine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/receipt"
)

// journal holds the receipts. The engine's mu guards it.
type journal struct {
	receipts []receipt.Receipt // oldest first
}

func (j *journal) recordLocked(r receipt.Receipt, at time.Time) {
	r.Format, r.ID, r.At = receipt.Format, fmt.Sprintf("r%018x", len(j.receipts)+1), at
	j.receipts = append(j.receipts, r)
}

// Receipts returns receipts, newest first.
func (e *Engine) Receipts(f receipt.Filter) ([]receipt.Receipt, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []receipt.Receipt
	for _, r := range slices.Backward(e.receipts) {
		kind, of := r.Subject()
		if (f.Kind == "" || f.Kind == kind) && (f.Of == "" || f.Of == of) && (f.Op == "" || f.Op == r.Op) &&
			(f.Tenant == "" || f.Tenant == r.Owner) && (f.Limit == 0 || len(out) < f.Limit) {
			out = append(out, r)
		}
	}
	return out, nil
}

// Receipt returns the newest receipt of a subject.
func (e *Engine) Receipt(kind receipt.Kind, of string) (receipt.Receipt, error) {
	list, err := e.Receipts(receipt.Filter{Kind: kind, Of: of, Limit: 1})
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s %s has no receipt: %w", kind, of, sandbox.ErrNotFound)
	}
	if err != nil {
		return receipt.Receipt{}, err
	}
	return list[0], nil
}

func forkReceipt(i sandbox.Info, from sandbox.SnapshotInfo) receipt.Receipt {
	return receipt.Receipt{
		Op: receipt.Fork, Sandbox: i.ID, Owner: i.Owner, TookUS: 4000, Secrets: receiptSecrets(i.Secrets),
		Parent: &receipt.Source{Tag: from.Tag, ContentHash: from.ContentHash,
			Layers: []receipt.Layer{{ID: "memory", Kind: "memory", Bytes: 256 << 20, Digest: "sha256:0b"}}},
		VM: &receipt.VM{Pooled: true, MapUS: 200, StateUS: 300},
		Identity: &receipt.Identity{Index: i.Index, Parent: i.SnapshotTag, Hostname: i.ID, MachineID: "00ff",
			GenerationID: "11ee", EntropyBytes: 64},
		Guest: &receipt.Guest{
			KernelReseeded: true, RandomDigest: "22dd", BootID: "b007", ClockStepUS: 90_000_000, TookUS: 1500,
			Steps: []receipt.GuestStep{{Name: "entropy", Done: true, TookUS: 100},
				{Name: "clock", Done: true, TookUS: 20}, {Name: "network", TookUS: 1}},
			Interpreters: []receipt.Interpreter{{Language: "python", Reseeded: []string{"random", "numpy.random", "openssl"},
				TookUS: 700}},
			Hooks: []receipt.Hook{{Name: "10-keys", TookUS: 400}},
		},
		Steps: []receipt.Step{{Name: "restore", TookUS: 1000}, {Name: "identity", TookUS: 2500}},
	}
}

func branchReceipt(req sandbox.BranchRequest, res sandbox.BranchResult, parent string) receipt.Receipt {
	return receipt.Receipt{
		Op: receipt.Branch, Sandbox: req.SandboxID, Snapshot: res.Tag, TookUS: res.Total.Microseconds(),
		Parent: &receipt.Source{Tag: parent, ContentHash: "sha256:feed"},
		Made:   &receipt.Source{Tag: res.Tag, ContentHash: "sha256:b0a7"},
		Capture: &receipt.Capture{
			Mode: cmp.Or(string(req.Mode), string(sandbox.BranchLive)), Mechanism: res.Mechanism,
			PauseUS: res.Pause.Microseconds(), Rounds: res.Rounds, Bytes: res.Bytes, PausedBytes: res.PausedBytes,
		},
		Steps: []receipt.Step{{Name: "capture", TookUS: 30_000}, {Name: "commit", TookUS: 9000}},
	}
}
