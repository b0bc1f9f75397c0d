package netpolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
)

// HostAddr is what HostName resolves to in every guest: a dummy address (RFC 7600) off the
// guest's link, so that it takes the gateway's way like any other.
var HostAddr = netip.MustParseAddr("192.0.0.8")

// FloorConfig is what an operator opens of the floor.
type FloorConfig struct {
	// Private are CIDRs inside of special-purpose ranges that policies may allow.
	// Link-local, loopback, tunnels, multicast and metadata cannot be among them.
	Private []netip.Prefix
	// HostPorts are TCP and UDP ports of the host that guests may reach by HostName.
	HostPorts []PortRange
	// Own are addresses by which the host is reached that none of its interfaces has, such as a public
	// one that a cloud translates.
	Own []netip.Prefix
	// HostTarget is the address at which the host is dialled for them; zero is 127.0.0.1.
	HostTarget netip.Addr
}

// Floor is what no policy opens: special-purpose addresses, the host's own, clouds' metadata.
// One serves all sandboxes of a host. It is safe for concurrent use. A nil *Floor is one
// without exceptions, that knows no addresses of the host.
type Floor struct {
	private   prefixTable
	own       prefixTable
	hostPorts []PortRange
	target    netip.Addr
	hostAddrs atomic.Pointer[map[netip.Addr]bool]
}

var (
	specialTable  = tableOf(specials)
	metadataTable = tableOf(metadata)
)

func tableOf(list []special) prefixTable {
	var b prefixBuilder
	for i, s := range list {
		b.add(s.prefix, i)
	}
	return b.build()
}

// NewFloor makes a floor. It is an error to open what cannot be opened.
func NewFloor(cfg FloorConfig) (*Floor, error) {
	f := &Floor{hostPorts: slices.Clone(cfg.HostPorts), target: cfg.HostTarget}
	var b prefixBuilder
	for i, p := range cfg.Private {
		if err := mayOpen(p); err != nil {
			return nil, err
		}
		b.add(p.Masked(), i)
	}
	f.private = b.build()
	var own prefixBuilder
	for i, p := range cfg.Own {
		if !p.IsValid() {
			return nil, fmt.Errorf("address of the host: no address")
		}
		own.add(unwrapPrefix(p.Masked()), i)
	}
	f.own = own.build()
	for _, ports := range cfg.HostPorts {
		if err := ports.check(); err != nil {
			return nil, err
		}
	}
	if !f.target.IsValid() {
		f.target = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return f, nil
}

// mayOpen looks for the smallest special range that has all of p in it.
func mayOpen(p netip.Prefix) error {
	if !p.IsValid() {
		return fmt.Errorf("open a private network: no CIDR")
	}
	p = p.Masked()
	best := -1
	for i, s := range specials {
		around := s.prefix.Bits() <= p.Bits() && s.prefix.Contains(p.Addr())
		if around && (best < 0 || s.prefix.Bits() >= specials[best].prefix.Bits()) {
			best = i
		}
	}
	if best < 0 {
		return fmt.Errorf("open %s: it is not inside of a private or other special-purpose range", p)
	}
	if !specials[best].openable {
		return fmt.Errorf("open %s: %s addresses are never reachable", p, specials[best].name)
	}
	return nil
}

// ParseOwn reads an address or a CIDR of the host.
func ParseOwn(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%.80q: want an address or a CIDR", text)
	}
	if p = unwrapPrefix(p.Masked()); p.Bits() == 0 {
		return netip.Prefix{}, fmt.Errorf("%.80q: it is every address", text)
	}
	return p, nil
}

// IsPublic reports whether an address is of the public internet.
func IsPublic(a netip.Addr) bool { return isPublic(Unwrap(a)) }

// SetHostAddrs replaces the set of addresses that the host itself has. Judges that run see
// the old set or the new one.
func (f *Floor) SetHostAddrs(addrs []netip.Addr) {
	set := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		set[a.Unmap().WithZone("")] = true
	}
	f.hostAddrs.Store(&set)
}

// HostPort reports whether the operator opened a port of the host, and where it is dialled.
func (f *Floor) HostPort(port uint16) (netip.AddrPort, bool) {
	if f == nil || !slices.ContainsFunc(f.hostPorts, func(r PortRange) bool { return r.has(port) }) {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(f.target, port), true
}

// HasHostPorts reports whether HostName stands for anything.
func (f *Floor) HasHostPorts() bool { return f != nil && len(f.hostPorts) > 0 }

var (
	nat64        = netip.MustParsePrefix("64:ff9b::/96")
	mappedPrefix = netip.MustParsePrefix("::ffff:0:0/96")
)

// Unwrap is the IPv4 address that a mapped or a NAT64 address (RFC 6052) stands for, else the
// address itself, without a zone. 6to4, Teredo and local NAT64 are not unwrapped: the floor
// closes all of them, whatever is inside.
func Unwrap(a netip.Addr) netip.Addr {
	a = a.WithZone("")
	if nat64.Contains(a) || mappedPrefix.Contains(a) {
		b := a.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

// CheckAddr says why no policy opens an address; the reason is empty if one may.
func (f *Floor) CheckAddr(addr netip.Addr) (Reason, string) {
	if !addr.IsValid() {
		return FloorSpecial, "there is no address"
	}
	a := Unwrap(addr)
	if i, ok := metadataTable.find(a); ok {
		return FloorMetadata, fmt.Sprintf("%s is %s, which no policy opens", addr, metadata[i].name)
	}
	if f != nil {
		if own := f.hostAddrs.Load(); own != nil && ((*own)[a] || (*own)[addr.WithZone("")]) {
			return FloorHost, fmt.Sprintf("%s is the host's own address, which no policy opens", addr)
		}
	}
	if f != nil {
		if _, is := f.own.find(a); is {
			return FloorHost, fmt.Sprintf("%s is the host's own address, which no policy opens", addr)
		}
	}
	i, closed := specialTable.find(a)
	if !closed {
		return "", ""
	}
	// RFC 6052 3.1: NAT64's prefix is not for addresses that are not global.
	if f != nil && specials[i].openable && !nat64.Contains(addr) {
		if _, open := f.private.find(a); open {
			return "", ""
		}
	}
	return FloorSpecial, fmt.Sprintf("%s is %s, which no policy opens", addr, article(specials[i].name))
}

// isPublic reports whether an unwrapped address is of the public internet, which default: public is
// about. An operator may open others; a policy reaches those only by an allow rule.
func isPublic(a netip.Addr) bool {
	_, special := specialTable.find(a)
	return !special
}

// publicPart reports whether a network has public addresses, and whether it has others.
func publicPart(p netip.Prefix) (public, others bool) {
	public = true
	for _, s := range specials {
		switch {
		case s.prefix.Bits() <= p.Bits() && s.prefix.Contains(p.Addr()):
			return false, true
		case s.prefix.Overlaps(p):
			others = true
		}
	}
	return public, others
}

func article(name string) string {
	if strings.HasPrefix(name, "forkd") {
		return "of " + name
	}
	return "in a special-purpose range (" + name + ")"
}

// CheckName says why no policy opens a canonical name; the reason is empty if one may.
func (f *Floor) CheckName(name string) (Reason, string) {
	for rest := name; ; {
		if what, closed := closedNames[rest]; closed {
			return FloorName, fmt.Sprintf("%s is %s, which no policy opens", name, what)
		}
		_, after, more := strings.Cut(rest, ".")
		if !more {
			return "", ""
		}
		rest = after
	}
}

// ClosedNames are the names that the floor closes, for listings.
func ClosedNames() []string {
	var names []string
	for n := range closedNames {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
