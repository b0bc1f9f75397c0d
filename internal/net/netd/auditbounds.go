package netd

import (
	"sync"
	"time"

	"github.com/forkd/forkd/internal/leaf/pace"
	"github.com/forkd/forkd/internal/net/netd/control"
)

// Limits for one VM.
const (
	vmLines    = 20   // lines per second, without lines that count others
	vmBurst    = 1000 // lines after an idle period
	vmKinds    = 64   // kinds of refusals with separate counts
	countEvery = 10 * time.Second
)

// suppressed is the Reason of a line that counts flows.
const suppressed = "flows beyond the log's rate for one sandbox"

// vmBounds counts refusals of one kind, and flows of VMs that exceed their rate.
type vmBounds struct {
	mu  sync.Mutex
	vms map[string]*vmBound
}

// vmBound holds the counts of one VM.
type vmBound struct {
	pace    *pace.Bucket
	pending map[refusal]*control.Line // refusals still being counted
	others  map[string]*control.Line  // by verdict
	used    time.Time
}

func newVMBounds() *vmBounds { return &vmBounds{vms: map[string]*vmBound{}} }

// count counts a line and returns true. It returns false if the line must be written now.
func (b *vmBounds) count(l control.Line) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.vms[l.VM]
	if v == nil {
		v = &vmBound{pace: pace.New(vmLines, vmBurst), pending: map[refusal]*control.Line{},
			others: map[string]*control.Line{}}
		b.vms[l.VM] = v
	}
	v.used = l.Time
	if l.Verdict == control.Allowed || l.Verdict == control.Cut || l.Verdict == control.Broken {
		if v.pace.Try(l.Time) {
			return false
		}
		v.other(l)
		return true
	}
	k := kindOf(l)
	switch p := v.pending[k]; {
	case p != nil:
		p.Count++
	case len(v.pending) >= vmKinds:
		v.other(l)
	default:
		l.Count = 1
		v.pending[k] = &l
	}
	return true
}

// other counts a line without its details.
func (v *vmBound) other(l control.Line) {
	o := v.others[l.Verdict]
	if o == nil {
		o = &control.Line{Time: l.Time, VM: l.VM, Sandbox: l.Sandbox, Owner: l.Owner, Verdict: l.Verdict,
			Name: control.Others, Reason: suppressed}
		v.others[l.Verdict] = o
	}
	o.Count += max(l.Count, 1)
	o.BytesIn, o.BytesOut = o.BytesIn+l.BytesIn, o.BytesOut+l.BytesOut
}

// take returns the lines that were counted long enough, or all lines, and forgets idle VMs.
func (b *vmBounds) take(now time.Time, all bool) (lines []control.Line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, v := range b.vms {
		for k, l := range v.pending {
			if !all && now.Sub(l.Time) < together {
				continue
			}
			delete(v.pending, k)
			if v.pace.Try(now) {
				lines = append(lines, *l)
			} else {
				v.other(*l)
			}
		}
		for verdict, l := range v.others {
			if all || now.Sub(l.Time) >= countEvery {
				delete(v.others, verdict)
				lines = append(lines, *l)
			}
		}
		if len(v.pending)+len(v.others) == 0 && now.Sub(v.used) > vmBurst/vmLines*time.Second {
			delete(b.vms, name)
		}
	}
	return lines
}
