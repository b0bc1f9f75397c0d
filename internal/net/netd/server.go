package netd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/leaf/shares"
	"github.com/forkd/forkd/internal/net/framelink"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netwire"
	"github.com/forkd/forkd/internal/net/upstream"
)

// Config configures a Server.
type Config struct {
	Rules Rules // creates the judge of each VM
	// AuditPath is the file of the audit. If empty, there is no file.
	AuditPath string
	// Intercept serves policies that inject headers. If nil, such policies are refused.
	Intercept Interceptor
	// Upstream is the operator's proxy for all TCP flows, except flows to the host itself. UDP and
	// echo requests, which the proxy does not support, are then refused. If nil, flows are dialed
	// directly.
	Upstream *upstream.Proxy
	// Descriptors limits the descriptors for the flows of all VMs together. If zero, the process's
	// own limit, minus its own needs.
	Descriptors int
	// Warn is called with errors for the operator. It must not block.
	Warn func(error)
	// OnShutdown is called when the daemon requests the end of the process.
	OnShutdown func()
}

// Server owns the wires of all VMs. It is the handler of the control socket.
type Server struct {
	cfg     Config
	audit   *audit
	hangups *hangups
	wires   *wires
	counts  counts
	trees   trees
	private privateNets
	// descriptors and subscriptions are shared by all VMs.
	descriptors, subscriptions *shares.Pool
	root                       context.Context
	stop                       context.CancelFunc
	closed                     sync.Once
	// replaced is set if the next process has other settings. Flows that would continue without
	// this process are then cut, because the new settings were not applied to them.
	replaced atomic.Bool

	mu  sync.Mutex // taken before the mu of any vm
	vms map[string]*vm
}

var _ control.Handler = (*Server)(nil)

// counts are counters since the start.
type counts struct {
	opened, denied, refused, limited, descriptors, cut, broken atomic.Uint64
}

// New returns a Server. Close ends it.
func New(cfg Config) (*Server, error) {
	a, err := newAudit(cfg.AuditPath, cfg.Warn)
	if err != nil {
		return nil, err
	}
	h, err := newHangups()
	if err != nil {
		a.close()
		return nil, err
	}
	w, err := newWires()
	if err != nil {
		h.close()
		a.close()
		return nil, err
	}
	if cfg.Upstream != nil {
		cfg.Upstream.Dialer.KeepAliveConfig = keepAlive
	}
	s := &Server{cfg: cfg, audit: a, hangups: h, wires: w, vms: map[string]*vm{},
		descriptors: shares.New(cmp.Or(cfg.Descriptors, ownDescriptors())), subscriptions: shares.New(subscribersMax)}
	s.private.waiting = framelink.NewBudget(waitingMax)
	s.root, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Close ends all wires and relays, and waits for them. Handed-over flows continue, unless Shutdown
// was called.
func (s *Server) Close() { s.closed.Do(s.close) }

func (s *Server) close() {
	s.stop()
	s.mu.Lock()
	all := s.vms
	s.vms = map[string]*vm{}
	s.mu.Unlock()
	for _, v := range all {
		v.leave()
	}
	s.wires.close()
	s.hangups.close()
	s.audit.close()
}

// VMs returns the number of bound VMs.
func (s *Server) VMs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.vms)
}

// Bind takes ownership of a VM's wire. A VM may be bound again after its wire has ended.
func (s *Server) Bind(b control.Binding, fd int) (control.Bound, error) {
	wire, err := netwire.TakeEnd(fd)
	if err != nil {
		return control.Bound{}, fmt.Errorf("%w: %w", control.ErrInvalid, err)
	}
	b.Names = s.private.namesOf(b)
	judge, err := s.cfg.Rules.New(b)
	if err != nil {
		wire.Close()
		return control.Bound{}, fmt.Errorf("%w: %w", control.ErrInvalid, err)
	}
	bound, err := s.bound(b.VM, b.Tenant, judge)
	if err != nil {
		wire.Close()
		judge.Close()
		return control.Bound{}, err
	}
	v := newVM(s, b, wire, judge)
	old, err := s.enter(v)
	if err != nil {
		v.leave()
		return control.Bound{}, err
	}
	if b.Member != nil {
		err = v.joinPrivate(*b.Member)
	}
	if old != nil {
		old.leave()
	}
	if err != nil {
		return control.Bound{}, errors.Join(err, s.Release(b.VM))
	}
	return bound, nil
}

// enter lists a VM and starts to read its wire.
func (s *Server) enter(v *vm) (old *vm, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root.Err() != nil {
		return nil, fmt.Errorf("forkd-net is ending")
	}
	if old = s.vms[v.name]; old != nil && old.isConnected() {
		return nil, fmt.Errorf("%w: %s", control.ErrExists, v.name)
	}
	if err := v.start(); err != nil {
		return nil, err
	}
	s.vms[v.name] = v
	return old, nil
}

// bound returns the answer to a bind or an update.
func (s *Server) bound(vm, tenant string, judge Judge) (control.Bound, error) {
	b := control.Bound{VM: vm}
	if !judge.HasHeaders() {
		return b, nil
	}
	if s.cfg.Intercept == nil {
		return b, fmt.Errorf("%w: this forkd-net injects no headers", control.ErrInvalid)
	}
	ca, err := s.cfg.Intercept.CA(authorityOf(tenant))
	b.CA = ca
	return b, err
}

// authorityOf names the CA that the guests of a tenant trust. A clone has the certificate of its source in the memory
// of its programs, so the source and its clones must have the same CA.
func authorityOf(tenant string) string {
	if tenant == "" {
		return "the operator"
	}
	return "tenant " + tenant
}

func (s *Server) vm(name string) (*vm, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.vms[name]; v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("%w: %q", control.ErrNotFound, name)
}

// Update replaces a VM's policy, and cuts flows that are no longer allowed.
func (s *Server) Update(name string, spec netpolicy.Spec) (control.Bound, error) {
	v, err := s.vm(name)
	if err != nil {
		return control.Bound{}, err
	}
	if spec.Intercepts() && s.cfg.Intercept == nil {
		return control.Bound{}, fmt.Errorf("%w: this forkd-net injects no headers", control.ErrInvalid)
	}
	if err := v.update(spec); err != nil {
		return control.Bound{}, fmt.Errorf("%w: %w", control.ErrInvalid, err)
	}
	return s.bound(name, v.owner, v.judge)
}

// Release ends a VM's wire and flows.
func (s *Server) Release(name string) error {
	s.mu.Lock()
	v := s.vms[name]
	delete(s.vms, name)
	s.mu.Unlock()
	if v == nil {
		return fmt.Errorf("%w: %q", control.ErrNotFound, name)
	}
	v.leave()
	return nil
}

// List returns the bound VMs, sorted by name.
func (s *Server) List() []control.Listed {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]control.Listed, 0, len(s.vms))
	for _, v := range s.vms {
		all = append(all, v.listed())
	}
	slices.SortFunc(all, func(a, b control.Listed) int { return strings.Compare(a.VM, b.VM) })
	return all
}

// Traffic returns the traffic of each VM.
func (s *Server) Traffic() []control.Traffic {
	s.mu.Lock()
	vms := slices.Collect(maps.Values(s.vms))
	s.mu.Unlock()
	all := make([]control.Traffic, 0, len(vms))
	for _, v := range vms {
		all = append(all, v.traffic())
	}
	return all
}

// Flows returns a VM's live flows.
func (s *Server) Flows(name string) ([]control.Flow, error) {
	v, err := s.vm(name)
	if err != nil {
		return nil, err
	}
	return v.liveFlows(), nil
}

// Refusals returns a VM's last refusals.
func (s *Server) Refusals(name string) ([]control.Line, error) {
	v, err := s.vm(name)
	if err != nil {
		return nil, err
	}
	return v.refusals.list(), nil
}

// Facts returns the names that a VM's guest has resolved.
func (s *Server) Facts(name string) (json.RawMessage, error) {
	v, err := s.vm(name)
	if err != nil {
		return nil, err
	}
	return v.judge.Facts(), nil
}

// Stats returns the counters.
func (s *Server) Stats() control.Stats {
	c := &s.counts
	st := control.Stats{
		Opened: c.opened.Load(), Denied: c.denied.Load(), Refused: c.refused.Load(), Limited: c.limited.Load(),
		Descriptor: c.descriptors.Load(), Cut: c.cut.Load(), Broken: c.broken.Load(), AuditLost: s.audit.lost.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.VMs = len(s.vms)
	for _, v := range s.vms {
		st.Flows += v.count()
	}
	return st
}

// Untold returns the refusals of all VMs since the last call.
func (s *Server) Untold() control.Untold {
	lines, lost := s.audit.unreported.take()
	return control.Untold{Lines: lines, Lost: lost}
}

// Subscribe follows the audit.
func (s *Server) Subscribe(vm string, send func(control.Line) error) (func(), error) {
	share := shares.Key{} // of all VMs: the operator's
	if v, err := s.vm(vm); err == nil {
		share = v.share
	}
	if !s.subscriptions.Try(share, 1) {
		return nil, fmt.Errorf("%w: too many follow the network logs of this tenant", control.ErrLimit)
	}
	cancel := s.audit.subscribe(vm, send)
	return sync.OnceFunc(func() {
		cancel()
		s.subscriptions.Free(share, 1)
	}), nil
}

// Shutdown starts the end of the process. A process with other settings takes its place.
func (s *Server) Shutdown() {
	s.replaced.Store(true)
	s.cfg.OnShutdown()
}

// NameDenied records a name that a VM's guest was not allowed to resolve, with its rule, reason and
// detail.
func (s *Server) NameDenied(vm string, l control.Line) {
	v, err := s.vm(vm)
	if err != nil {
		return
	}
	l.Protocol, l.NameSource, l.Verdict = "dns", fromDNS, control.Denied
	s.tell(v, l)
}

// withoutDetail returns a line as the guest and its owner may see it.
func withoutDetail(l control.Line) control.Line {
	l.Detail = ""
	return l
}

// tell counts a line and passes it on.
func (s *Server) tell(v *vm, l control.Line) {
	l.Time, l.VM, l.Sandbox, l.Owner = time.Now(), v.name, v.sandbox, v.owner
	l.Name, l.Rule, l.Reason = guesttext.Clip(l.Name, 256), guesttext.Clip(l.Rule, 256), guesttext.Clip(l.Reason, 500)
	counter := map[string]*atomic.Uint64{
		control.Denied: &s.counts.denied, control.Refused: &s.counts.refused, control.Limited: &s.counts.limited,
		control.Cut: &s.counts.cut, control.Broken: &s.counts.broken,
	}[l.Verdict]
	if counter != nil {
		counter.Add(1)
	}
	switch l.Verdict {
	case control.Denied, control.Refused, control.Limited, control.Cut:
		v.refusals.add(withoutDetail(l))
	}
	s.audit.add(l)
}
