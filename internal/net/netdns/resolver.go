package netdns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/forkd/forkd/internal/leaf/shares"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Policy is the part of a sandbox's policy for the resolver. *netpolicy.Policy implements it.
type Policy interface {
	// JudgeDNS decides whether a name may be resolved.
	JudgeDNS(name string, qtype uint16) netpolicy.DNSDecision
	// JudgeAlias decides about a name behind the alias of an allowed name.
	JudgeAlias(name string) netpolicy.DNSDecision
	// CheckAddr returns why policies cannot open an address. If they can, the reason is empty.
	CheckAddr(addr netip.Addr) (netpolicy.Reason, string)
}

// Budget limits the queries of a sandbox. *netpolicy.Budget implements it.
type Budget interface {
	TakeDNS(now time.Time) bool
}

// Guest is the source of a question.
type Guest struct {
	Policy Policy           // decides which names the guest may resolve
	Facts  *netpolicy.Facts // filled with the answers
	Budget Budget           // nil for no limit
	// Members returns the address of a member of the guest's private network, by its canonical name.
	// May be nil.
	Members func(name string) (netip.Addr, bool)
	Share   shares.Key // key for its part of the questions to the upstream
}

// Upstream resolves names. Its messages are answers to the question, with checked ID and question.
// The rest of a message is not trusted.
type Upstream interface {
	Ask(ctx context.Context, q dnsmessage.Question) (*dnsmessage.Message, error)
}

// Config configures a Resolver.
type Config struct {
	Upstream Upstream         // the host's resolver
	HasIPv6  func() bool      // whether the host has an IPv6 route; otherwise AAAA answers are empty
	Now      func() time.Time // if nil, time.Now
	Timeout  time.Duration    // of a question with all its tries; zero means 4.5 s
	Inflight int              // concurrent questions to the upstream of all guests together; zero means 2048
}

// defaultTimeout is less than 5 s, after which resolvers in guests ask again.
const defaultTimeout = 4500 * time.Millisecond

// Resolver answers the guests of a host. It is safe for concurrent use. It has no cache, because
// the host's resolver has one.
type Resolver struct {
	cfg   Config
	slots *shares.Pool
}

// New returns a resolver.
func New(cfg Config) *Resolver {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Inflight == 0 {
		cfg.Inflight = 2048
	}
	if cfg.HasIPv6 == nil {
		cfg.HasIPv6 = func() bool { return false }
	}
	return &Resolver{cfg: cfg, slots: shares.New(cfg.Inflight)}
}

// Entry describes the result of a question, for the audit log.
type Entry struct {
	Name   string           // lowercase, without the final dot; empty if the message had no valid name
	Type   uint16           // record type of the question
	RCode  uint16           // of the answer
	Reason netpolicy.Reason // of the decision; empty if there was no decision
	Rule   string           // the deciding rule
	Text   string           // one sentence for the guest, if the question was refused or failed
	// Detail is the part of the text that the guest must not see: the host's resolvers, and names
	// and addresses from their answers. Empty if it would add no information to Text.
	Detail  string
	Addrs   []netip.Addr // sent to the guest
	Removed []netip.Addr // from the upstream, but policies cannot open them
}

// Answer answers a guest's message. It returns nil if there must be no answer. It blocks while it
// asks the upstream; the caller limits the concurrent calls for one guest.
//
// A guest beyond its budget gets SERVFAIL with the reason. musl does not accept REFUSED as an
// answer and waits for its timeout, and without any answer all resolvers wait. SERVFAIL is an
// immediate temporary failure for glibc, Go and c-ares. musl asks again later, when there is budget
// again.
func (r *Resolver) Answer(ctx context.Context, g Guest, msg []byte, tcp bool) ([]byte, Entry) {
	q, err := parseQuery(msg)
	if errors.Is(err, errSilent) {
		return nil, Entry{Text: err.Error()}
	}
	e := Entry{Type: uint16(q.question.Type)}
	if q.question.Name.Length > 0 {
		e.Name = fold(q.question.Name)
	}
	rep := r.reply(ctx, g, &q, err, &e)
	e.RCode = uint16(rep.rcode)
	return rep.pack(&q, tcp), e
}

func (r *Resolver) reply(ctx context.Context, g Guest, q *query, bad error, e *Entry) reply {
	switch {
	case g.Budget != nil && !g.Budget.TakeDNS(r.cfg.Now()):
		e.Reason, e.Text = netpolicy.LimitDNS, "too many queries; see the policy's limits"
		return failed(otherError, e.Text)
	case q.opCode != 0:
		return plain(dnsmessage.RCodeNotImplemented)
	case bad != nil:
		e.Text = bad.Error()
		return plain(dnsmessage.RCodeFormatError)
	case q.edns && q.version != 0:
		return plain(badVersion)
	case q.question.Class != dnsmessage.ClassINET:
		return plain(dnsmessage.RCodeNotImplemented)
	case e.Name == "": // the root: probes ask for its NS
		return plain(dnsmessage.RCodeSuccess)
	}
	return r.resolve(ctx, g, q.question, e)
}

// resolve judges a question and gets its answer.
func (r *Resolver) resolve(ctx context.Context, g Guest, q dnsmessage.Question, e *Entry) reply {
	if g.Members != nil {
		if addr, is := g.Members(e.Name); is {
			return member(q, addr, e)
		}
	}
	d := g.Policy.JudgeDNS(e.Name, uint16(q.Type))
	e.Reason, e.Rule, e.Text = d.Reason, d.Rule, d.Text
	switch {
	case d.Verdict != netpolicy.Allowed:
		return reply{rcode: dnsmessage.RCodeNameError, ede: blocked, text: d.Text}
	case d.Local:
		return r.local(q, e)
	case d.Empty, !answered[q.Type], q.Type == dnsmessage.TypeAAAA && !r.cfg.HasIPv6():
		return plain(dnsmessage.RCodeSuccess)
	}
	m, err := r.ask(ctx, g.Share, q)
	if err != nil {
		e.Text, e.Detail = "the host's resolver does not answer", err.Error()
		return failed(networkBad, e.Text)
	}
	return r.rebuild(g, q, m, e)
}

// memberTTL is short, because members come and go. Their addresses are not facts: only the network
// knows them.
const memberTTL = 5

// member answers for a member of the guest's private network. Its flows are judged, so its name need
// not be.
func member(q dnsmessage.Question, addr netip.Addr, e *Entry) reply {
	e.Reason = netpolicy.PrivateMember
	return own(q, addr, memberTTL, e)
}

// local answers for the host's name.
func (r *Resolver) local(q dnsmessage.Question, e *Entry) reply {
	return own(q, netpolicy.HostAddr, 60, e)
}

// own answers for a name of forkd's zone, which has an IPv4 address.
func own(q dnsmessage.Question, addr netip.Addr, ttl uint32, e *Entry) reply {
	rep := plain(dnsmessage.RCodeSuccess)
	if q.Type == dnsmessage.TypeA {
		e.Addrs = []netip.Addr{addr}
		rep.answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: ttl},
			Body:   &dnsmessage.AResource{A: addr.As4()},
		}}
	}
	return rep
}

// ask asks the upstream. The number of questions is limited for all guests together, so that
// hanging names cannot use up the memory. A guest whose share is used up waits; other guests do
// not.
func (r *Resolver) ask(ctx context.Context, k shares.Key, q dnsmessage.Question) (*dnsmessage.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	if err := r.slots.Wait(ctx, k); err != nil {
		return nil, fmt.Errorf("%d questions are on their way, the sandbox's part of them too: %w", r.slots.Used(), err)
	}
	defer r.slots.Free(k, 1)
	// The case of a guest's letters could be a covert channel to the name's server.
	q.Name = lower(q.Name)
	return r.cfg.Upstream.Ask(ctx, q)
}

// rebuild builds the answer from the understood and allowed parts, and records its facts.
func (r *Resolver) rebuild(g Guest, q dnsmessage.Question, m *dnsmessage.Message, e *Entry) reply {
	if m.RCode != dnsmessage.RCodeSuccess && m.RCode != dnsmessage.RCodeNameError {
		e.Text, e.Detail = "the host's resolver has no answer", "it answered "+m.RCode.String()
		return failed(networkBad, e.Text)
	}
	k, err := keep(q, m)
	if err != nil {
		e.Text = err.Error()
		return failed(otherError, e.Text)
	}
	for _, alias := range k.names[1:] {
		if d := g.Policy.JudgeAlias(alias); d.Verdict != netpolicy.Allowed {
			e.Reason, e.Rule = d.Reason, d.Rule
			e.Text, e.Detail = e.Name+" is an alias of a name that policy does not allow", d.Text
			return reply{rcode: dnsmessage.RCodeNameError, ede: blocked, text: e.Text}
		}
	}
	rep := plain(m.RCode)
	rep.answers = r.open(g, k, e)
	if len(rep.answers) == 0 || len(e.Addrs) == 0 {
		rep.authority = k.soa
	}
	if len(e.Removed) > 0 && len(e.Addrs) == 0 {
		rep.ede, rep.text = blocked, e.Text
		rep.answers, rep.authority = nil, nil
	}
	return rep
}

// open removes addresses of the floor, because a name may have been pointed there on purpose. The
// other addresses become facts of each name on the way to them.
func (r *Resolver) open(g Guest, k kept, e *Entry) []dnsmessage.Resource {
	now := r.cfg.Now()
	var out []dnsmessage.Resource
	for _, rec := range k.records {
		addr, is := address(rec)
		if !is {
			out = append(out, rec)
			continue
		}
		if reason, text := g.Policy.CheckAddr(addr); reason != "" {
			e.Removed, e.Reason = append(e.Removed, addr), reason
			e.Text, e.Detail = e.Name+" has an address that no policy opens, such as a private one", text
			continue
		}
		out, e.Addrs = append(out, rec), append(e.Addrs, addr)
		for _, name := range k.names {
			g.Facts.Add(name, addr, ttl(rec)+grace, now)
		}
	}
	return out
}
