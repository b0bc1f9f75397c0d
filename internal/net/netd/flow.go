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
	ctx        context.Context // of opening and relaying
	cancel     context.CancelFunc
	generation uint64 // of the policy that it was admitted under
	gateway    bool   // it is to the gateway itself: no line in the audit tells of its end

	// Guarded by v.mu.
	question  Question // by which it is judged anew
	verdict   Verdict
	source    string // of the name: dns, sni, host
	cancelled bool   // by the VMM, before it was answered
	relayed   bool
	live      *live  // nil while it is being opened
	why       string // it is being cut; empty for no
	detail    string // of its end, for the operator
	over      bool
	cost      int // descriptors that are counted for it
}

// live is a flow that the guest has.
type live struct {
	// sever stops its bytes at once, and leaves the rest to close; nil leaves all.
	sever func()
	// close ends it; hard wants both ends to see a reset.
	close func(hard bool)
	// unpaced: its bytes pass forkd-net by, or are spliced, so that no rate can be kept. Nil: they are not.
	unpaced func() bool
	// counts are the bytes to and from the guest. It may be called until the flow is over.
	counts func() (in, out int64)
}

// passesBy: it cannot be held to a bandwidth limit.
func (l *live) passesBy() bool { return l.unpaced != nil && l.unpaced() }

// noCounts is for what has no bytes worth telling.
func noCounts() (in, out int64) { return 0, 0 }

// Sources of names.
const (
	fromDNS  = "dns"
	fromSNI  = "sni"
	fromHost = "host"
)

// judged notes by what a flow was judged, and with which result.
func (f *flow) judged(q Question, verdict Verdict, source string) {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	if q.Name == "" && verdict.Name != "" {
		// Later it is asked about by this name: the guest's facts may have expired by then.
		q.Name, source = verdict.Name, fromDNS
	}
	if q.Name != "" && verdict.Name == "" {
		verdict.Name = q.Name
	}
	f.question, f.verdict, f.source = q, verdict, source
}

// answer is to be called before the VMM is told. It is false when the VMM has
// cancelled: then it is told nothing.
func (f *flow) answer() bool {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	if f.cancelled {
		return false
	}
	delete(f.v.opening, f.id)
	return true
}

// refuse tells the VMM and the audit that there is no flow.
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

// deny refuses what policy does not allow.
func (f *flow) deny(verdict Verdict) {
	f.refuse(netwire.Prohibited, control.Denied, verdict.Text)
}

// fail refuses what could not be opened.
func (f *flow) fail(err error) {
	reason, verdict, text := reasonOf(err, f.asked.Far.Addr().Is6())
	noteFor(f, err)
	if outOfDescriptors(err) {
		f.v.s.counts.descriptors.Add(1)
	}
	f.refuse(reason, verdict, text)
}

// noteFor keeps an error for the operator, whom the texts for the guest do not tell all.
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

// begin makes a flow live. It is false when it must not become so, or is cut at
// once: by a change of policy in between, or the VM's end. Whoever called
// it with what is closed by l does not close that itself then.
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

// judgeAnew cuts a flow that policy allows no more, and reports whether it did.
func (f *flow) judgeAnew() (cut bool) {
	if cut = f.sever(); cut {
		f.cut("")
	}
	return cut
}

// sever stops a flow's bytes if policy allows it no more, and reports whether it
// has to be cut. Whoever finds it ended now notes that it was cut.
func (f *flow) sever() bool {
	f.v.mu.Lock()
	q, old := f.question, f.verdict
	f.v.mu.Unlock()
	if !q.Far.IsValid() {
		return false // of the gateway, or its name is not read yet: it will be judged then
	}
	now := f.v.judge.Flow(q)
	why := now.Text
	if now.Outcome == Allow && now.Dial == old.Dial {
		if f.v.meters(true).none() || !f.live.passesBy() {
			return false
		}
		why = "it has a bandwidth limit now, which this connection would pass by"
	}
	f.v.mu.Lock()
	f.why = "policy has changed: " + why
	f.v.mu.Unlock()
	if f.live.sever != nil {
		f.live.sever()
	}
	return true
}

// cut ends a live flow at once, with a reset.
func (f *flow) cut(why string) { f.finish(true, control.Cut, why) }

// end ends a live flow that has ended by itself.
func (f *flow) end(hard bool) { f.finish(hard, control.Allowed, "") }

// finish ends a flow once: its bytes are counted and its line is written, then it is closed. So
// whoever sees the end can read why.
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

// remove takes a flow off the lists; it is false the second time.
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

// line is what the audit says about it.
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

// shown is the flow as a list has it.
func (f *flow) shown() control.Flow {
	in, out := f.live.counts()
	l := f.line("", "")
	return control.Flow{
		ID: f.id, Protocol: l.Protocol, Guest: f.asked.Guest, Far: l.Far, Name: l.Name, NameSource: l.NameSource,
		Rule: l.Rule, Relayed: f.relayed, BytesIn: in, BytesOut: out, Since: f.since,
	}
}
