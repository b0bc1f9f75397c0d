package ruled

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/leaf/shares"
	"github.com/forkd/forkd/internal/net/netd"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netdns"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netproxy"
	"github.com/forkd/forkd/internal/net/netwire"
	"github.com/forkd/forkd/internal/net/s3sign"
	"github.com/forkd/forkd/internal/net/upstream"
)

// Config holds the operator's settings.
type Config struct {
	Floor    *netpolicy.Floor  // destinations closed to all sandboxes
	Ceiling  *netpolicy.Policy // may be nil
	Resolver *netdns.Resolver  // answers the guests' questions
	// Denied is called with an audit line, without its verdict, for each name that was not
	// resolved. May be nil.
	Denied func(vm string, l control.Line)
}

// Rules creates judges.
type Rules struct {
	cfg Config

	mu sync.Mutex
	// last is the last compiled policy. The children of a fork have the same policy and share it.
	last *netpolicy.Policy
}

var _ netd.Rules = (*Rules)(nil)

// New returns Rules.
func New(cfg Config) *Rules { return &Rules{cfg: cfg} }

// New compiles a VM's policy and returns its judge.
func (r *Rules) New(b control.Binding) (netd.Judge, error) {
	p, err := r.compile(b.Spec)
	if err != nil {
		return nil, err
	}
	facts := &netpolicy.Facts{}
	if len(b.Facts) > 0 {
		var all []netpolicy.Exported
		if err := json.Unmarshal(b.Facts, &all); err != nil {
			return nil, fmt.Errorf("facts: %w", err)
		}
		facts = netpolicy.Import(all, time.Now())
	}
	j := &judge{rules: r, vm: b.VM, share: b.Share(), facts: facts, budget: netpolicy.NewBudget(p.Limits()),
		members: b.Names}
	j.policy.Store(p)
	return j, nil
}

// compile compiles a policy, unless it equals the previous one.
func (r *Rules) compile(spec netpolicy.Spec) (*netpolicy.Policy, error) {
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()
	if last != nil && reflect.DeepEqual(last.Spec(), spec) {
		return last, nil
	}
	p, err := netpolicy.CompileWithin(spec, netpolicy.Bounds{Floor: r.cfg.Floor, Ceiling: r.cfg.Ceiling})
	if err == nil {
		r.mu.Lock()
		r.last = p
		r.mu.Unlock()
	}
	return p, err
}

// judge judges the flows of one VM.
type judge struct {
	rules  *Rules
	vm     string
	share  shares.Key
	facts  *netpolicy.Facts
	budget *netpolicy.Budget // for DNS queries; netd counts flows itself
	policy atomic.Pointer[netpolicy.Policy]
	// members returns the address of a member of the private network; may be nil.
	members func(name string) (netip.Addr, bool)
	proxy   atomic.Pointer[located] // the last one; nil without
}

// located are the judged addresses of a proxy.
type located struct {
	via    *netpolicy.Via
	client *upstream.Proxy
	addrs  []netip.AddrPort
	until  time.Time
}

// locatedFor is how long a proxy is not resolved again.
const locatedFor = 15 * time.Second

func (j *judge) Flow(q netd.Question) netd.Verdict {
	p, now := j.policy.Load(), time.Now()
	v := verdict(p.Judge(netpolicy.Query{
		Protocol: netpolicy.Protocol(q.Protocol), Addr: q.Far, Name: q.Name, Facts: j.facts, Now: now,
	}))
	if v.Outcome != netd.Allow || v.Dial.IsValid() {
		return v
	}
	if v.Via = p.Proxy(); v.Via != nil && v.Via.Names {
		v.Known = j.known(p, q, v, now)
	}
	return v
}

// known returns a name that a proxy may resolve instead of a flow's address. The guest chooses what its own names
// resolve to. So the name must be the one that the rules have allowed, unless there are no rules.
func (j *judge) known(p *netpolicy.Policy, q netd.Question, v netd.Verdict, now time.Time) string {
	if name := cmp.Or(q.Name, v.Name); name != "" {
		return name
	}
	if spec := p.Spec(); len(spec.Allow)+len(spec.Deny) > 0 || p.HasDomainRules() {
		return ""
	}
	if names := j.facts.Names(nil, q.Far.Addr(), now); len(names) == 1 {
		return names[0]
	}
	return ""
}

// Proxy resolves and judges a proxy's own name.
func (j *judge) Proxy(ctx context.Context, via *netpolicy.Via) (*upstream.Proxy, []netip.AddrPort, error) {
	if l := j.proxy.Load(); l != nil && l.via == via && time.Now().Before(l.until) {
		return l.client, l.addrs, nil
	}
	addrs, err := j.locate(ctx, via)
	if err != nil {
		return nil, nil, err
	}
	client := upstream.New(via.URL)
	j.proxy.Store(&located{via, client, addrs, time.Now().Add(locatedFor)})
	return client, addrs, nil
}

// locate returns the proxy's addresses that its policy allows. The guest's facts are not asked: they are the guest's.
func (j *judge) locate(ctx context.Context, via *netpolicy.Via) (out []netip.AddrPort, err error) {
	addrs := []netip.Addr{via.Addr.Addr()}
	guest := netdns.Guest{Policy: via.Reach, Facts: &netpolicy.Facts{}, Budget: j.budget, Share: j.share}
	if via.Host != "" {
		if addrs, err = j.rules.cfg.Resolver.Lookup(ctx, guest, via.Host); err != nil {
			return nil, fmt.Errorf("resolve %s: %w", via.Host, err)
		}
	}
	why := via.Host + " has no address"
	for _, a := range addrs {
		at := netip.AddrPortFrom(a, via.Addr.Port())
		d := via.Reach.Judge(netpolicy.Query{
			Protocol: netpolicy.TCP, Addr: at, Name: via.Host, Facts: guest.Facts, Now: time.Now(),
		})
		if d.Verdict == netpolicy.Allowed && !d.Dial.IsValid() {
			out = append(out, at)
			continue
		}
		why = fmt.Sprintf("%s is not allowed: %s", at, d.Text)
	}
	if len(out) == 0 {
		return nil, errors.New(why)
	}
	return out, nil
}

func verdict(d netpolicy.Decision) netd.Verdict {
	v := netd.Verdict{
		Peek: d.Peek, Dial: d.Dial, Rule: d.Rule, Name: d.Name, Code: string(d.Reason), Text: d.Text,
	}
	switch d.Verdict {
	case netpolicy.Allowed:
		v.Outcome = netd.Allow
	case netpolicy.NeedName:
		v.Outcome = netd.NeedName
	}
	return v
}

// Member implements netd.Judge.
func (j *judge) Member(name string, p netwire.Protocol, port uint16) netd.Verdict {
	return verdict(j.policy.Load().JudgeMember(name, netpolicy.Protocol(p), port))
}

func (j *judge) Name(name string, port uint16) netd.Verdict {
	return verdict(j.policy.Load().JudgeName(name, port))
}

func (j *judge) Attested(name string, addr netip.Addr) bool {
	n, err := netpolicy.CanonicalName(name)
	return err == nil && j.facts.Has(n, addr, time.Now())
}

func (j *judge) guest() netdns.Guest {
	return netdns.Guest{Policy: j.policy.Load(), Facts: j.facts, Budget: j.budget, Share: j.share, Members: j.members}
}

func (j *judge) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	n, err := netpolicy.CanonicalName(name)
	if err != nil {
		return nil, err
	}
	return j.rules.cfg.Resolver.Lookup(ctx, j.guest(), n)
}

func (j *judge) DNS(ctx context.Context, query []byte, tcp bool) []byte {
	answer, e := j.rules.cfg.Resolver.Answer(ctx, j.guest(), query, tcp)
	if e.Text != "" && e.Name != "" && j.rules.cfg.Denied != nil {
		j.rules.cfg.Denied(j.vm, control.Line{Name: e.Name, Rule: e.Rule, Reason: e.Text, Detail: e.Detail})
	}
	return answer
}

func (j *judge) Limits() netpolicy.Limits { return j.policy.Load().Limits() }

func (j *judge) Headers(host string) map[string]string {
	n, err := netpolicy.CanonicalName(host)
	if err != nil {
		return nil
	}
	return j.policy.Load().Headers(n)
}

func (j *judge) Signer(host string) netproxy.Signer {
	n, err := netpolicy.CanonicalName(host)
	if err != nil {
		return nil
	}
	signed := j.policy.Load().Sign(n)
	if signed == nil {
		return nil
	}
	return s3sign.New(grantOf(n, signed), time.Now)
}

// grantOf returns a rule of a policy for the signer. The rule's host may be below one of its buckets.
func grantOf(host string, by *netpolicy.Signed) s3sign.Grant {
	g := s3sign.Grant{Host: host, HostBucket: by.HostBucket, Region: by.Rule.Region, Missing: by.Missing}
	if k := by.Rule.Keys; k != nil {
		g.Keys = s3sign.Keys{AccessKeyID: k.AccessKeyID, SecretAccessKey: k.SecretAccessKey, SessionToken: k.SessionToken}
	}
	for _, b := range by.Rule.Buckets {
		g.Buckets = append(g.Buckets, s3sign.Bucket{Name: b.Name, Prefix: b.Prefix, ReadOnly: b.ReadOnly})
	}
	return g
}

func (j *judge) HasHeaders() bool {
	spec := j.policy.Load().Spec()
	return spec.Intercepts()
}

func (j *judge) Update(spec netpolicy.Spec) error {
	p, err := j.rules.compile(spec)
	if err != nil {
		return err
	}
	j.policy.Store(p)
	j.budget.SetLimits(p.Limits())
	return nil
}

func (j *judge) Facts() json.RawMessage {
	b, err := json.Marshal(j.facts.Export(time.Now()))
	if err != nil {
		return nil
	}
	return b
}

func (j *judge) Close() {}
