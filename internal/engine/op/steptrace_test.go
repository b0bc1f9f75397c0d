package op_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/leaf/steps"
)

// checkSteps fails if steps lack one of want, are outside their time, or are not on the page of spans.
func checkSteps(t *testing.T, op string, list []steps.Step, want ...string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/operate/tracing.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var walk func(list []steps.Step, from, to time.Duration)
	walk = func(list []steps.Step, from, to time.Duration) {
		for _, s := range list {
			name := "step." + s.Name
			if s.By != "" {
				name = string(s.By) + "." + s.Name
			}
			seen[name] = true
			if s.At < from || s.Took < 0 || s.At+s.Took > to {
				t.Errorf("%s: %s is from %s for %s, outside of %s to %s", op, name, s.At, s.Took, from, to)
			}
			if !strings.Contains(string(page), "| `"+name+"` |") {
				t.Errorf("%s: docs/operate/tracing.md has no span %s", op, name)
			}
			walk(s.Below, s.At, s.At+s.Took)
			from = s.At // steps are in order
		}
	}
	walk(list, 0, time.Minute)
	for _, name := range want {
		if !seen[name] {
			t.Errorf("%s has no step %s: %+v", op, name, list)
		}
	}
}

// The steps of operations, of VMMs and of guests reach the recorder of the request's trace.
func TestStepsForTraces(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	ctx, rec := steps.With(t.Context(), 2)
	r, err := e.Fork(ctx, sandbox.ForkRequest{Tag: "a", N: 3})
	if err != nil || len(r.Children) != 3 {
		t.Fatal(r, err)
	}
	recorded := 0
	for _, c := range r.Children {
		if list := rec.Child(c.Index); list != nil {
			recorded++
			checkSteps(t, "fork", list, "step.turn", "step.restore", "step.start", "step.identity", "guest.entropy")
		}
	}
	if recorded != 2 || rec.Steps() != nil {
		t.Errorf("%d children have steps, want 2; the fork has %v", recorded, rec.Steps())
	}
	id := r.Children[0].Info.ID
	ctx, rec = steps.With(t.Context(), 2)
	if _, err := e.Branch(ctx, sandbox.BranchRequest{SandboxID: id, Tag: "b", N: 1}); err != nil {
		t.Fatal(err)
	}
	checkSteps(t, "branch", rec.Steps(), "step.turn", "step.capture", "vmm.copy", "step.write", "step.commit")
	checkSteps(t, "branch's child", rec.Child(1), "step.restore", "vmm.map", "vmm.state", "step.identity")
	ctx, rec = steps.With(t.Context(), 0)
	if _, err := e.Branch(ctx, sandbox.BranchRequest{SandboxID: id, Tag: "c", NoWait: true}); err != nil {
		t.Fatal(err)
	}
	checkSteps(t, "branch without waiting", rec.Steps(), "step.turn", "step.capture", "vmm.copy")
	ctx, rec = steps.With(t.Context(), 0)
	if _, err := e.Rollback(ctx, id, "b"); err != nil {
		t.Fatal(err)
	}
	checkSteps(t, "rollback", rec.Steps(), "step.turn", "step.restore", "step.identity", "step.exchange", "step.end")
	ctx, rec = steps.With(t.Context(), 0)
	if _, err := e.Pause(ctx, id, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	checkSteps(t, "pause", rec.Steps(), "step.turn", "step.capture", "vmm.copy", "step.write", "step.commit", "step.settle")
	ctx, rec = steps.With(t.Context(), 0)
	if _, err := e.Resume(ctx, id); err != nil {
		t.Fatal(err)
	}
	checkSteps(t, "resume", rec.Steps(), "step.turn", "step.restore", "step.identity", "step.settle")
}
