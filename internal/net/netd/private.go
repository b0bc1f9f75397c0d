package netd

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/net/framelink"
	"github.com/forkd/forkd/internal/net/members"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netwire"
)

// privateNets holds the private networks with bound members.
type privateNets struct {
	waiting *framelink.Budget // for frames to slow VMMs

	mu  sync.Mutex // taken before the mu of any of them
	all map[privateKey]*privateNet
}

// privateKey names a network. It has the tenant, so no binding reaches the network of another one.
type privateKey struct{ tenant, network string }

// privateNet is one network. Packets between its members pass through this process, because each
// flow is judged, and because each guest has the same address.
type privateNet struct {
	mu sync.Mutex // taken before the mu of any vm
	// at has the members by address, the newest last. A rollback binds a sandbox's new VM before
	// the old one has ended. The newest has the address.
	at    map[netip.Addr][]*member
	table *members.Table
	swept time.Time // ended flows were removed
}

// waitingMax limits the bytes that wait for slow VMMs, of all members together.
const waitingMax = 64 << 20

// sweepEvery is the time between two searches for ended flows.
const sweepEvery = 5 * time.Second

// ended is a flow that is over, for the audit.
type ended struct {
	v    *vm
	line control.Line
}

// join adds a VM to its network. The member receives packets from now on.
func (p *privateNets) join(m *member) {
	key := privateKey{m.v.owner, m.as.Network}
	p.mu.Lock()
	if p.all == nil {
		p.all = map[privateKey]*privateNet{}
	}
	n := p.all[key]
	if n == nil {
		n = &privateNet{at: map[netip.Addr][]*member{}, table: members.NewTable()}
		p.all[key] = n
	}
	m.in, m.key = n, key
	n.mu.Lock()
	over := n.reset(m.as.Addr, "its sandbox has another VM now")
	n.at[m.as.Addr] = append(n.at[m.as.Addr], m)
	n.mu.Unlock()
	p.mu.Unlock()
	tellAll(over)
}

// leave removes a member and resets its connections.
func (p *privateNets) leave(m *member) {
	p.mu.Lock()
	n, addr := m.in, m.as.Addr
	n.mu.Lock()
	var over []ended
	rest := n.at[addr]
	if n.has(addr) == m {
		over = n.reset(addr, "the other member has left the network, is paused, or was rolled back")
	}
	for i, other := range rest {
		if other == m {
			rest = append(rest[:i:i], rest[i+1:]...)
			break
		}
	}
	if n.at[addr] = rest; len(rest) == 0 {
		delete(n.at, addr)
	}
	if len(n.at) == 0 {
		delete(p.all, m.key)
	}
	n.mu.Unlock()
	p.mu.Unlock()
	tellAll(over)
}

func tellAll(over []ended) {
	for _, e := range over {
		e.v.s.tell(e.v, e.line)
	}
}

// has returns the member with an address, or nil. n.mu is held, as for all functions below.
func (n *privateNet) has(addr netip.Addr) *member {
	if all := n.at[addr]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// lookup returns the address of a name in the network.
func (n *privateNet) lookup(name string) (netip.Addr, bool) {
	alias, ok := strings.CutSuffix(name, "."+netpolicy.Zone)
	if !ok {
		return netip.Addr{}, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for addr := range n.at {
		if n.has(addr).as.Alias == alias {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// reset ends the flows of an address, with resets for the other ends.
func (n *privateNet) reset(addr netip.Addr, why string) (over []ended) {
	for _, f := range n.table.Of(addr) {
		if f.From().Addr != addr {
			n.sendReset(f, true)
		}
		if f.To().Addr != addr {
			n.sendReset(f, false)
		}
		over = append(over, n.end(f, control.Cut, why)...)
	}
	return over
}

func (n *privateNet) sendReset(f *members.Flow, opener bool) {
	to := f.To().Addr
	if opener {
		to = f.From().Addr
	}
	if m := n.has(to); m != nil {
		if b := f.Reset(opener, guestnet.Guest4.Addr()); b != nil {
			m.send(b)
		}
	}
}

// end forgets a flow, and returns its line for the audit of the member that opened it.
func (n *privateNet) end(f *members.Flow, verdict, why string) []ended {
	m := n.has(f.From().Addr)
	if !n.table.Remove(f) || m == nil {
		return nil
	}
	line := n.line(protocolOf(f.Protocol()), f.To())
	line.Rule, line.Verdict, line.Reason = f.Rule, verdict, why
	line.BytesIn, line.BytesOut, line.Seconds = f.Received, f.Sent, time.Since(f.Since).Seconds()
	return []ended{{m.v, line}}
}

// line returns a line about a flow to a member.
func (n *privateNet) line(p netwire.Protocol, to members.End) control.Line {
	l := control.Line{Protocol: p.String(), Far: netip.AddrPortFrom(to.Addr, to.Port)}
	if p == netwire.Echo {
		l.Far = netip.AddrPortFrom(to.Addr, 0)
	}
	if m := n.has(to.Addr); m != nil {
		l.Name, l.NameSource = m.as.Name(), fromDNS
	}
	return l
}

func protocolOf(p uint8) netwire.Protocol {
	if p == members.ICMP {
		return netwire.Echo
	}
	return netwire.Protocol(p)
}

// sweep removes flows that have ended without a last packet.
func (n *privateNet) sweep(now time.Time) (over []ended) {
	if now.Sub(n.swept) < sweepEvery {
		return nil
	}
	n.swept = now
	for _, f := range n.table.Idle(now, netip.Addr{}) {
		over = append(over, n.end(f, control.Allowed, "")...)
	}
	return over
}

// route decides about a packet of a member. It returns the receiver, or the answer to the sender.
func (n *privateNet) route(m *member, p *members.Packet, now time.Time) (to *member, answer []byte, over []ended) {
	n.mu.Lock()
	defer n.mu.Unlock()
	own := m.as.Addr
	if n.has(own) != m { // the VM that it was before a rollback
		return nil, nil, nil
	}
	over = n.sweep(now)
	if q, is := p.Quoted(); is {
		to, refused := n.routeError(m, p, &q)
		return to, nil, append(over, refused...)
	}
	to = n.has(p.Dst)
	f, forward := n.table.Find(p, own, p.Dst)
	isTCP, isReset := p.IsTCP()
	if f != nil && f.Reusable(p, forward) {
		over = append(over, n.end(f, control.Allowed, "")...)
		f = nil
	}
	if f == nil {
		if isReset || !isTCP && !p.Opens() {
			return nil, nil, over
		}
		var no *unopened
		if f, no = n.open(m, to, p, now); no != nil {
			line := n.line(protocolOf(p.Protocol), members.End{Addr: p.Dst, Port: p.DstPort})
			line.Verdict, line.Reason, line.Rule = no.verdict, no.text, no.rule
			return nil, p.Refusal(no.why), append(over, ended{m.v, line})
		}
		forward = true
	}
	n.table.Seen(f, p, forward, now)
	if isReset {
		over = append(over, n.end(f, control.Allowed, "")...)
	}
	return to, nil, over
}

// routeError passes on an ICMP error about a flow that exists.
func (n *privateNet) routeError(m *member, p, quoted *members.Packet) (*member, []ended) {
	guest := guestnet.Guest4.Addr()
	f, _ := n.table.Find(quoted, quoted.Src, m.as.Addr)
	to := n.has(p.Dst)
	if f == nil || to == nil || quoted.Dst != guest || quoted.Src != p.Dst {
		return nil, nil
	}
	return to, n.end(f, control.Refused, "connection refused")
}

// unopened is why a flow is not opened.
type unopened struct {
	why                 members.Why
	verdict, text, rule string
}

// open judges a new flow. A segment in the middle of a connection comes after a restart of forkd-net
// and has no known opener, so it is judged in both directions.
func (n *privateNet) open(m, to *member, p *members.Packet, now time.Time) (*members.Flow, *unopened) {
	if to == nil {
		return nil, &unopened{members.HostUnreachable, control.Refused, "no running member has this address", ""}
	}
	protocol := protocolOf(p.Protocol)
	verdict := m.v.judge.Member(to.as.Name(), protocol, echoPort(protocol, p.DstPort))
	if verdict.Outcome == Allow && !p.Opens() {
		verdict = to.v.judge.Member(m.as.Name(), protocol, echoPort(protocol, p.SrcPort))
	}
	if verdict.Outcome != Allow {
		return nil, &unopened{members.Prohibited, control.Denied, verdict.Text, verdict.Rule}
	}
	if limit := n.limit(m, now); limit != "" {
		return nil, &unopened{members.Prohibited, control.Limited, limit, ""}
	}
	return n.table.Add(p, m.as.Addr, p.Dst, verdict.Rule, now), nil
}

// echoPort returns 0 for echo requests: their identifier is no port.
func echoPort(p netwire.Protocol, port uint16) uint16 {
	if p == netwire.Echo {
		return 0
	}
	return port
}

// limit returns the exceeded limit of a member, or an empty text.
func (n *privateNet) limit(m *member, now time.Time) string {
	reason, most := m.v.admitMember(n.table.Opened(m.as.Addr), now)
	if !most {
		return reason
	}
	for _, f := range n.table.Idle(now, m.as.Addr) {
		n.end(f, control.Allowed, "")
	}
	if n.table.Opened(m.as.Addr) >= m.v.flowLimit() {
		return reason
	}
	return ""
}

// rejudge cuts the flows of a member that its policy no longer allows.
func (n *privateNet) rejudge(m *member) {
	n.mu.Lock()
	var over []ended
	for _, f := range n.table.Of(m.as.Addr) {
		to := n.has(f.To().Addr)
		if f.From().Addr != m.as.Addr || to == nil {
			continue
		}
		p := protocolOf(f.Protocol())
		if v := m.v.judge.Member(to.as.Name(), p, echoPort(p, f.To().Port)); v.Outcome != Allow {
			n.sendReset(f, true)
			n.sendReset(f, false)
			over = append(over, n.end(f, control.Cut, "policy has changed: "+v.Text)...)
		}
	}
	n.mu.Unlock()
	tellAll(over)
}

// flows returns the flows that a member has opened.
func (n *privateNet) flows(m *member) (all []control.Flow) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.has(m.as.Addr) != m {
		return nil
	}
	for _, f := range n.table.Of(m.as.Addr) {
		if f.From().Addr != m.as.Addr {
			continue
		}
		l := n.line(protocolOf(f.Protocol()), f.To())
		all = append(all, control.Flow{Protocol: l.Protocol, Far: l.Far, Name: l.Name, NameSource: l.NameSource,
			Guest: netip.AddrPortFrom(guestnet.Guest4.Addr(), f.From().Port), Rule: f.Rule, Relayed: true,
			BytesIn: f.Received, BytesOut: f.Sent, Since: f.Since})
	}
	return all
}
