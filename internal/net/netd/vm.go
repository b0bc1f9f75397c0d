package netd

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/pace"
	"github.com/forkd/forkd/internal/leaf/shares"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netwire"
)

// openingMax limits the flows of a VM that are being opened.
const openingMax = 64

// vm is one VM's wire and its flows.
type vm struct {
	s                  *Server
	name, sandbox, tag string
	owner              string // tenant; empty for the operator
	handover           bool
	treeOf             control.Tree
	share              shares.Key // key for its part of shared resources
	tree               *tree      // its tree; nil if there is none, or the tree has no limit
	wire               *netwire.End
	judge              Judge
	refusals           refusals
	queries            chan struct{} // holds a value for each DNS query in progress

	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup // goroutines that open, relay, or end the VM

	reading sync.Mutex // held while a message is handled; taken before mu
	token   uint64     // at wires; 0 if not registered
	left    bool       // no more messages are handled

	mu         sync.Mutex // no I/O under it
	spec       netpolicy.Spec
	limits     netpolicy.Limits
	rate       *pace.Bucket // new flows
	in, out    *meter       // bytes; nil for no limit
	generation uint64       // of the policy
	serial     uint64
	flows      map[uint64]*flow // by serial; including flows being opened
	opening    map[uint32]*flow // by id
	connected  bool
	member     *member // of a private network; may be nil
	had        traffic
}

func newVM(s *Server, b control.Binding, wire *netwire.End, judge Judge) *vm {
	v := &vm{
		s: s, name: b.VM, sandbox: b.Sandbox, tag: b.Tag, owner: b.Tenant, handover: b.Handover, wire: wire, judge: judge,
		spec: b.Spec, flows: map[uint64]*flow{}, opening: map[uint32]*flow{}, connected: true,
		queries: make(chan struct{}, queriesMax), treeOf: b.Tree, share: b.Share(), tree: s.trees.join(b.Tree),
	}
	v.ctx, v.cancel = context.WithCancel(s.root)
	v.setLimitsLocked(judge.Limits())
	return v
}

func (v *vm) setLimitsLocked(l netpolicy.Limits) {
	before := v.limits.BytesPerSecond
	v.limits = l
	v.rate = pace.New(l.FlowsPerSecond, l.FlowsPerSecond)
	if before != l.BytesPerSecond { // otherwise owed bytes stay owed
		v.in, v.out = newMeter(l.BytesPerSecond), newMeter(l.BytesPerSecond)
	}
}

// traffic returns the bytes of the VM's ended and live flows.
func (v *vm) traffic() control.Traffic {
	t := control.Traffic{VM: v.name}
	v.mu.Lock()
	t.Limit = v.limits.BytesPerSecond
	live := v.liveLocked()
	v.mu.Unlock()
	if v.tree != nil && (t.Limit == 0 || v.tree.rate < t.Limit) {
		t.Limit = v.tree.rate
	}
	for _, f := range live {
		in, out := f.live.counts()
		t.In, t.Out = t.In+in, t.Out+out
	}
	// A flow that ends in between is briefly counted twice rather than not at all.
	t.In, t.Out = t.In+v.had.in.Load(), t.Out+v.had.out.Load()
	return t
}

// start starts reading the wire.
func (v *vm) start() (err error) {
	v.reading.Lock()
	defer v.reading.Unlock()
	v.token, err = v.s.wires.add(v)
	return err
}

// deafen stops reading the wire for now. The caller holds reading.
func (v *vm) deafen() {
	if v.token != 0 {
		v.s.wires.remove(v, v.token)
		v.token = 0
	}
}

// readable handles one of the VMM's messages.
func (v *vm) readable() {
	v.reading.Lock()
	defer v.reading.Unlock()
	if v.left || v.token == 0 {
		return
	}
	m, err := v.wire.Receive()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return
	}
	if err == nil {
		err = v.handle(m)
	}
	switch {
	case errors.Is(err, unix.EAGAIN): // the VMM does not accept its refusal: stop reading until it does
		v.deafen()
		v.wait.Go(func() { v.refuseLater(m.ID) })
	case err != nil:
		v.deafen()
		v.left = true
		v.wait.Go(func() { v.ended(err) })
	}
}

// refuseLater waits until a VMM accepts a refusal, then reads its wire again.
func (v *vm) refuseLater(id uint32) {
	err := v.wire.Send(overLimit(id))
	v.reading.Lock()
	defer v.reading.Unlock()
	if v.left {
		return
	}
	if err == nil {
		v.token, err = v.s.wires.add(v)
	}
	if err != nil {
		v.left = true
		v.wait.Go(func() { v.ended(err) })
	}
}

// ended handles a wire that has ended, or a VMM that has broken the protocol.
func (v *vm) ended(err error) {
	v.mu.Lock()
	v.connected = false
	v.mu.Unlock()
	v.wire.Close()
	if errors.Is(err, netwire.ErrMessage) && v.ctx.Err() == nil {
		v.s.tell(v, control.Line{Verdict: control.Broken, Reason: err.Error()})
	}
	v.cancel()
	v.memberNow().leave()
	v.cutAll("the VM's wire has ended")
}

// leave ends all flows and goroutines of the VM, and waits for them.
func (v *vm) leave() {
	v.cancel()
	v.reading.Lock()
	v.left = true
	v.deafen()
	v.reading.Unlock()
	v.mu.Lock()
	v.connected = false
	v.mu.Unlock()
	v.wire.Close()
	v.memberNow().leave()
	v.cutAll("the VM was released")
	v.wait.Wait()
	v.judge.Close()
	v.s.trees.leave(v.treeOf)
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

// handle handles a VMM's message. It returns an ErrMessage for a message that a correct VMM does
// not send.
func (v *vm) handle(m netwire.Message) error {
	switch m.Kind {
	case netwire.Open:
		return v.open(m)
	case netwire.Cancel:
		v.cancelOpening(m.ID)
		return nil
	}
	return fmt.Errorf("%w: kind %d from a VMM", netwire.ErrMessage, m.Kind)
}

// open admits a flow and starts to open it, or refuses it.
func (v *vm) open(m netwire.Message) error {
	f := &flow{v: v, id: m.ID, asked: m.Flow, since: time.Now()}
	limit, err := v.admit(f)
	if err != nil {
		return err
	}
	if limit != "" {
		v.s.tell(v, f.line(control.Limited, limit))
		return v.wire.TrySend(overLimit(m.ID))
	}
	v.wait.Go(func() {
		defer f.cancel()
		f.run()
	})
	return nil
}

// overLimit returns the answer to a flow over a limit.
func overLimit(id uint32) netwire.Message {
	return netwire.Message{Kind: netwire.Refused, ID: id, Reason: netwire.Reset}
}

// admit lists a flow as being opened, or returns the exceeded limit.
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
	case !v.s.descriptors.Try(v.share, costOf(f)):
		return "the part of forkd-net's connections that this sandbox or its tenant may have", nil
	}
	f.cost = costOf(f)
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

// update replaces the policy, then judges all live flows again.
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
	// First stop all bytes, then clean up the flows.
	severed := make([]bool, len(live))
	onCPUs(len(live), func(i int) { severed[i] = live[i].sever() })
	onCPUs(len(live), func(i int) {
		if severed[i] {
			live[i].cut("")
		}
	})
	if m := v.memberNow(); m != nil {
		m.in.rejudge(m)
	}
	return nil
}

// perCPU is the minimum number of flows that one CPU ends before another one helps.
const perCPU = 32

// onCPUs calls do n times on a suitable number of CPUs, because each reset takes the kernel some
// time.
func onCPUs(n int, do func(i int)) {
	var next atomic.Int64
	var wait sync.WaitGroup
	worker := func() {
		for i := next.Add(1); i <= int64(n); i = next.Add(1) {
			do(int(i - 1))
		}
	}
	for range min(runtime.GOMAXPROCS(0), n/perCPU) - 1 {
		wait.Go(worker)
	}
	worker()
	wait.Wait()
}

func (v *vm) liveLocked() (live []*flow) {
	for _, f := range v.flows {
		if f.live != nil {
			live = append(live, f)
		}
	}
	return live
}

// cutAll ends all live flows. If forkd-net itself is ending, handed-over flows continue without it,
// except on a change of settings, which may be a narrower ceiling.
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
	if m := v.memberNow(); m != nil {
		all = append(all, m.in.flows(m)...)
	}
	return all
}
