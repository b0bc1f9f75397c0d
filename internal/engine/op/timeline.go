package op

import (
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/steps"
)

// timeline returns the marked steps for the request's trace. Each began when the previous one ended.
func (t *trace) timeline() []steps.Step {
	out := make([]steps.Step, 0, len(t.steps))
	var at time.Duration
	for _, s := range t.steps {
		took := time.Duration(s.TookUS) * time.Microsecond
		out = append(out, steps.Step{Name: s.Name, At: at, Took: took})
		at += took
	}
	return out
}

// timeline returns the steps of a child, with those that its VMM and its guest measured.
func (b *child) timeline() []steps.Step {
	all := b.trace.timeline()
	for i, s := range all {
		switch {
		case s.Name == "restore" && b.m != nil && !b.m.Prepared: // the pool restored a prepared VM earlier
			all[i].Below = s.Ending(steps.VMM, []steps.Reported{
				{Name: "map", Took: b.m.Restored.Map}, {Name: "state", Took: b.m.Restored.State}})
		case s.Name == "identity" && b.answer != nil:
			all[i].Below = s.Ending(steps.Guest, reported(b.answer.GetSteps()))
		}
	}
	return all
}

// reported returns the steps of a guest's answer that a trace can have.
func reported(answer []*agentv1.IdentityStep) (out []steps.Reported) {
	for _, s := range answer[:min(len(answer), steps.MaxReported)] {
		out = append(out, steps.Reported{Name: s.GetName(), Took: time.Duration(s.GetTookNs())})
	}
	return out
}

// timelineOf returns the steps of a capture, with the parts of the guest's pause.
func timelineOf(w *branchOp) []steps.Step {
	all := w.trace.timeline()
	for i, s := range all {
		if s.Name != "capture" {
			continue
		}
		if w.cold {
			all[i].Below = s.Ending(steps.Guest, w.told)
			continue
		}
		var told []steps.Reported
		for _, p := range w.took.Steps {
			told = append(told, steps.Reported{Name: p.Name, Took: p.Took})
		}
		if asked := w.captured - s.At; asked > 0 { // the step is longer than the VMM's part
			s.Took = min(s.Took, asked)
		}
		all[i].Below = s.Ending(steps.VMM, told)
	}
	return all
}
