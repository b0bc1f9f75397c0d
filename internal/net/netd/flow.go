package netd

import (
	"context"
	"errors"
	"time"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netwire"
)

// flow is one flow of a guest, from its Open to its end.
type flow struct {
	v          *vm
	id         uint32
	serial     uint64
	asked      netwire.Flow
	since      time.Time
	ctx        context.Context // for opening and relaying
	cancel     context.CancelFunc
	generation uint64 // of the policy at admission
	gateway    bool   // a flow to the gateway itself; the audit has no line about its end

	// Guarded by v.mu.
	question  Question // the question for judging it again
	verdict   Verdict
	source    string // source of the name: dns, sni, host
	cancelled bool   // cancelled by the VMM before the answer
	relayed   bool
	live      *live  // nil while it is opened
	why       string // reason for the cut in progress; empty if there is none
	detail    string // about its end, for the operator
	over      bool
	cost      int // descriptors counted for it
}

// live is an established flow.
type live struct {
	// sever stops its bytes immediately, and leaves the rest to close. If nil, close does all of
	// it.
	sever func()
	// close ends it. If hard, both ends see a reset.
	close func(hard bool)
	// unpaced reports whether its bytes bypass forkd-net or are spliced, so no rate limit applies.
	// If nil, false.
	unpaced func() bool
	// counts returns the bytes to and from the guest. It may be called until the flow is over.
	counts func() (in, out int64)
}

// passesBy reports whether the flow cannot be held to a bandwidth limit.
func (l *live) passesBy() bool { return l.unpaced != nil && l.unpaced() }

// noCounts is for flows whose bytes are not counted.
func noCounts() (in, out int64) { return 0, 0 }

// Sources of names.
const (
	fromDNS  = "dns"
	fromSNI  = "sni"
	fromHost = "host"
)

// judged records how a flow was judged, with the result.
func (f *flow) judged(q Question, verdict Verdict, source string) {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	if q.Name == "" && verdict.Name != "" {
		// Later checks use this name: the guest's facts may have expired by then.
		q.Name, source = verdict.Name, fromDNS
	}
	if q.Name != "" && verdict.Name == "" {
		verdict.Name = q.Name
	}
	f.question, f.verdict, f.source = q, verdict, source
}

// answer must be called before the VMM gets an answer. It returns false if the VMM has cancelled:
// then send no answer.
func (f *flow) answer() bool {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	if f.cancelled {
		return false
	}
	delete(f.v.opening, f.id)
	return true
}

// refuse refuses the flow. It sends the refusal to the VMM and the audit.
func (f *flow) refuse(reason netwire.Reason, verdict, text string) {
	told := f.answer()
	line := f.line(verdict, text)
	if !f.remove() {
		return
	}
	if told {
		f.v.s.tell(f.v, line)
		f.v.wire.Send(netwire.Message{Kind: netwire.Refused, ID: f.id, Reason: reason})
	}
}

// deny refuses a flow that the policy does not allow.
func (f *flow) deny(verdict Verdict) {
	f.refuse(netwire.Prohibited, control.Denied, verdict.Text)
}

// fail refuses a flow that could not be opened.
func (f *flow) fail(err error) {
	reason, verdict, text := reasonOf(err, f.asked.Far.Addr().Is6())
	noteFor(f, err)
	if outOfDescriptors(err) {
		f.v.s.counts.descriptors.Add(1)
	}
	f.refuse(reason, verdict, text)
}

// noteFor stores an error for the operator, because the texts for the guest omit details.
func noteFor(f *flow, err error) {
	text := err.Error()
	var more interface{ Detail() string }
	if errors.As(err, &more) {
		text = more.Detail()
	}
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	f.detail = text
}

// begin makes a flow live. It returns false if the flow must not become live or was cut
// immediately, because the policy has changed or the VM has ended. In that case it has closed l,
// and the caller must not close the resources of l.
func (f *flow) begin(l *live, relayed bool) bool {
	f.v.mu.Lock()
	f.live, f.relayed = l, relayed
	stale := f.generation != f.v.generation
	gone := !f.v.connected || f.v.ctx.Err() != nil
	f.v.mu.Unlock()
	f.v.s.counts.opened.Add(1)
	if gone {
		f.cut("the VM has gone")
		return false
	}
	return !stale || !f.judgeAnew()
}

// judgeAnew cuts a flow that the policy no longer allows, and reports whether it did.
func (f *flow) judgeAnew() (cut bool) {
	if cut = f.sever(); cut {
		f.cut("")
	}
	return cut
}

// sever stops the bytes of a flow that the policy no longer allows, and reports whether it must be
// cut. If the flow ends meanwhile, it is recorded as cut.
func (f *flow) sever() bool {
	f.v.mu.Lock()
	q, old := f.question, f.verdict
	f.v.mu.Unlock()
	if !q.Far.IsValid() {
		return false // to the gateway, or its name is not read yet: it will be judged then
	}
	now := f.v.judge.Flow(q)
	why := now.Text
	same := now.Via.Same(old.Via)
	if now.Outcome == Allow && now.Dial == old.Dial && same {
		if f.v.meters(true).none() || !f.live.passesBy() {
			return false
		}
		why = "it has a bandwidth limit now, which this connection would pass by"
	}
	if now.Outcome == Allow && !same {
		why = "it has another proxy now"
	}
	f.v.mu.Lock()
	f.why = "policy has changed: " + why
	f.v.mu.Unlock()
	if f.live.sever != nil {
		f.live.sever()
	}
	return true
}

// cut ends a live flow immediately, with a reset.
func (f *flow) cut(why string) { f.finish(true, control.Cut, why) }

// end records the normal end of a live flow.
func (f *flow) end(hard bool) { f.finish(hard, control.Allowed, "") }

// finish ends a flow once. It counts the bytes, writes the audit line, and then closes the flow. So
// an observer of the end can read the reason.
func (f *flow) finish(hard bool, verdict, why string) {
	line := f.line(verdict, why)
	f.v.mu.Lock()
	if f.why != "" {
		line.Verdict, line.Reason, hard = control.Cut, f.why, true
	}
	f.v.mu.Unlock()
	if !f.remove() {
		return
	}
	f.cancel()
	if f.live != nil {
		line.BytesIn, line.BytesOut = f.live.counts()
		f.v.had.add(line.BytesIn, line.BytesOut)
	}
	line.Seconds = time.Since(f.since).Seconds()
	if !f.gateway {
		f.v.s.tell(f.v, line)
	}
	if f.live != nil {
		f.live.close(hard)
	}
}

// remove removes a flow from the lists. It returns false on a second call.
func (f *flow) remove() bool {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	if f.over {
		return false
	}
	f.over = true
	f.v.s.descriptors.Free(f.v.share, f.cost)
	delete(f.v.flows, f.serial)
	if f.v.opening[f.id] == f {
		delete(f.v.opening, f.id)
	}
	return true
}

// line returns the audit line for the flow.
func (f *flow) line(verdict, reason string) control.Line {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	l := control.Line{
		Protocol: f.asked.Protocol.String(), Far: f.asked.Far, Verdict: verdict, Reason: reason,
		Name: f.verdict.Name, NameSource: f.source, Rule: f.verdict.Rule,
	}
	if f.question.Far.IsValid() {
		l.Far = f.question.Far
	}
	l.Detail = f.detail
	return l
}

// shown returns the flow in the form for lists.
func (f *flow) shown() control.Flow {
	in, out := f.live.counts()
	l := f.line("", "")
	return control.Flow{
		ID: f.id, Protocol: l.Protocol, Guest: f.asked.Guest, Far: l.Far, Name: l.Name, NameSource: l.NameSource,
		Rule: l.Rule, Relayed: f.relayed, BytesIn: in, BytesOut: out, Since: f.since,
	}
}
