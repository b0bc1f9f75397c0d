package netd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/netd/control"
	"github.com/forkd/forkd/internal/netpolicy"
	"github.com/forkd/forkd/internal/netwire"
	"github.com/forkd/forkd/internal/pace"
)

// openingMax is how many flows of a VM may be on their way to being opened.
const openingMax = 64

// vm is one VM's wire and its flows.
type vm struct {
	s                  *Server
	name, sandbox, tag string
	handover           bool
	wire               *netwire.Conn
	judge              Judge
	refusals           refusals
	queries            chan struct{} // has a value for each DNS query under way

	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup // the reader, and what opens or relays

	mu         sync.Mutex // no I/O under it
	spec       netpolicy.Spec
	limits     netpolicy.Limits
	rate       *pace.Bucket // new flows
	in, out    *pace.Bucket // bytes; nil for no limit
	generation uint64       // of the policy
	serial     uint64
	flows      map[uint64]*flow // by serial; those that are being opened, too
	opening    map[uint32]*flow // by id
	connected  bool
}

func newVM(s *Server, b control.Binding, wire *netwire.Conn, judge Judge) *vm {
	v := &vm{
		s: s, name: b.VM, sandbox: b.Sandbox, tag: b.Tag, handover: b.Handover, wire: wire, judge: judge,
		spec: b.Spec, flows: map[uint64]*flow{}, opening: map[uint32]*flow{}, connected: true,
		queries: make(chan struct{}, queriesMax),
	}
	v.ctx, v.cancel = context.WithCancel(s.root)
	v.setLimitsLocked(judge.Limits())
	return v
}

func (v *vm) setLimitsLocked(l netpolicy.Limits) {
	v.limits = l
	v.rate = pace.New(l.FlowsPerSecond, l.FlowsPerSecond)
	v.in, v.out = nil, nil
	if n := int(l.BytesPerSecond); n > 0 {
		v.in, v.out = pace.New(n, max(n/4, netwire.MaxDatagram)), pace.New(n, max(n/4, netwire.MaxDatagram))
	}
}

// start reads the wire until it ends.
func (v *vm) start() {
	v.wait.Go(func() {
		err := v.read()
		v.mu.Lock()
		v.connected = false
		v.mu.Unlock()
		v.wire.Close()
		if errors.Is(err, netwire.ErrMessage) && v.ctx.Err() == nil {
			v.s.tell(v, control.Line{Verdict: control.Broken, Reason: err.Error()})
		}
		v.cancel()
		v.cutAll("the VM's wire has ended")
	})
}

// leave ends all that the VM has, and waits for it.
func (v *vm) leave() {
	v.cancel()
	v.wire.Close()
	v.cutAll("the VM was released")
	v.wait.Wait()
	v.judge.Close()
}

func (v *vm) isConnected() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.connected
}

func (v *vm) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.flows)
}

func (v *vm) listed() control.Listed {
	v.mu.Lock()
	defer v.mu.Unlock()
	return control.Listed{
		VM: v.name, Sandbox: v.sandbox, Tag: v.tag, Handover: v.handover,
		Connected: v.connected, Flows: len(v.flows), Spec: v.spec,
	}
}

// read handles the VMM's messages until the wire ends. What is no message of a
// sound VMM is an ErrMessage.
func (v *vm) read() error {
	for {
		m, _, err := v.wire.Receive(false)
		if err != nil {
			return err
		}
		switch m.Kind {
		case netwire.Open:
			err = v.open(m)
		case netwire.Cancel:
			v.cancelOpening(m.ID)
		default:
			err = fmt.Errorf("%w: kind %d from a VMM", netwire.ErrMessage, m.Kind)
		}
		if err != nil {
			return err
		}
	}
}

// open admits a flow and begins to open it, or refuses it.
func (v *vm) open(m netwire.Message) error {
	f := &flow{v: v, id: m.ID, asked: m.Flow, since: time.Now()}
	limit, err := v.admit(f)
	if err != nil {
		return err
	}
	if limit != "" {
		v.s.tell(v, f.line(control.Limited, limit))
		return v.wire.Send(netwire.Message{Kind: netwire.Refused, ID: m.ID, Reason: netwire.Reset})
	}
	v.wait.Go(func() {
		defer f.cancel()
		f.run()
	})
	return nil
}

// admit lists a flow as being opened, or says which limit it is over.
func (v *vm) admit(f *flow) (limit string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.opening[f.id] != nil:
		return "", fmt.Errorf("%w: id %d is being opened already", netwire.ErrMessage, f.id)
	case len(v.flows) >= v.limits.Flows:
		return fmt.Sprintf("%d flows at once", v.limits.Flows), nil
	case len(v.opening) >= openingMax:
		return fmt.Sprintf("%d flows that are being opened", openingMax), nil
	case !v.rate.Try(f.since):
		return fmt.Sprintf("%d new flows in a second", v.limits.FlowsPerSecond), nil
	}
	f.ctx, f.cancel = context.WithCancel(v.ctx)
	v.serial++
	f.serial, f.generation = v.serial, v.generation
	v.flows[f.serial], v.opening[f.id] = f, f
	return "", nil
}

func (v *vm) cancelOpening(id uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f := v.opening[id]; f != nil {
		f.cancelled = true
		delete(v.opening, id)
		f.cancel()
	}
}

// update replaces the policy, then judges what is live anew.
func (v *vm) update(spec netpolicy.Spec) error {
	if err := v.judge.Update(spec); err != nil {
		return err
	}
	v.mu.Lock()
	v.spec = spec
	v.generation++
	v.setLimitsLocked(v.judge.Limits())
	live := v.liveLocked()
	v.mu.Unlock()
	// First all bytes stop, then what is left of the flows is put away.
	live = slices.DeleteFunc(live, func(f *flow) bool { return !f.sever() })
	for _, f := range live {
		f.cut("")
	}
	return nil
}

func (v *vm) liveLocked() (live []*flow) {
	for _, f := range v.flows {
		if f.live != nil {
			live = append(live, f)
		}
	}
	return live
}

// cutAll ends what is live. When it is forkd-net that ends, what was handed over
// goes on without it; but not past a change of settings, which may be a narrower ceiling.
func (v *vm) cutAll(why string) {
	v.mu.Lock()
	live := v.liveLocked()
	v.mu.Unlock()
	ending := v.s.root.Err() != nil && !v.s.replaced.Load()
	for _, f := range live {
		if ending && !f.relayed {
			f.finish(false, control.Allowed, "it goes on: forkd-net has ended")
			continue
		}
		f.cut(why)
	}
}

func (v *vm) liveFlows() (all []control.Flow) {
	v.mu.Lock()
	live := v.liveLocked()
	v.mu.Unlock()
	for _, f := range live {
		all = append(all, f.shown())
	}
	return all
}
