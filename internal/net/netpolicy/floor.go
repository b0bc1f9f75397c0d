package netpolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
)

// HostAddr is the address of HostName in every guest: a dummy address (RFC 7600) outside the
// guest's link, so packets to it go to the gateway like all others.
var HostAddr = netip.MustParseAddr("192.0.0.8")

// FloorConfig contains the operator's exceptions to the floor.
type FloorConfig struct {
	// Private are CIDRs inside special-purpose ranges that policies may allow. Link-local,
	// loopback, tunnel, multicast and metadata addresses are never allowed.
	Private []netip.Prefix
	// HostPorts are TCP and UDP ports of the host that guests may reach by HostName.
	HostPorts []PortRange
	// Own are further addresses of the host that are on none of its interfaces, such as a public
	// address translated by a cloud.
	Own []netip.Prefix
	// HostTarget is the dialed address for HostPorts. If zero, 127.0.0.1.
	HostTarget netip.Addr
}

// Floor blocks destinations that policies cannot open: special-purpose addresses, the host's own
// addresses and clouds' metadata. One Floor serves all sandboxes of a host. It is safe for
// concurrent use. A nil *Floor has no exceptions and knows no addresses of the host.
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

// NewFloor returns a floor. It returns an error if cfg opens an address that must stay closed.
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

// mayOpen checks the smallest special range that contains all of p.
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

// IsPublic reports whether an address belongs to the public internet.
func IsPublic(a netip.Addr) bool { return isPublic(Unwrap(a)) }

// SetHostAddrs replaces the host's own addresses. A concurrent Judge sees either the old or the new
// set.
func (f *Floor) SetHostAddrs(addrs []netip.Addr) {
	set := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		set[a.Unmap().WithZone("")] = true
	}
	f.hostAddrs.Store(&set)
}

// HostPort reports whether the operator has opened a port of the host, and returns the address to
// dial.
func (f *Floor) HostPort(port uint16) (netip.AddrPort, bool) {
	if f == nil || !slices.ContainsFunc(f.hostPorts, func(r PortRange) bool { return r.has(port) }) {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(f.target, port), true
}

// HasHostPorts reports whether HostName resolves to an address.
func (f *Floor) HasHostPorts() bool { return f != nil && len(f.hostPorts) > 0 }

var (
	nat64        = netip.MustParsePrefix("64:ff9b::/96")
	mappedPrefix = netip.MustParsePrefix("::ffff:0:0/96")
)

// Unwrap returns the IPv4 address inside a mapped or NAT64 address (RFC 6052), otherwise the
// address itself, without a zone. It does not unwrap 6to4, Teredo and local NAT64: the floor closes
// all of them, whatever they contain.
func Unwrap(a netip.Addr) netip.Addr {
	a = a.WithZone("")
	if nat64.Contains(a) || mappedPrefix.Contains(a) {
		b := a.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

// CheckAddr returns why policies cannot open an address. If they can, the reason is empty.
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
	// RFC 6052 3.1: the NAT64 prefix is only for global addresses.
	if f != nil && specials[i].openable && !nat64.Contains(addr) {
		if _, open := f.private.find(a); open {
			return "", ""
		}
	}
	return FloorSpecial, fmt.Sprintf("%s is %s, which no policy opens", addr, article(specials[i].name))
}

// isPublic reports whether an unwrapped address belongs to the public internet, the scope of
// default: public. An operator may open others; a policy reaches these only by an allow rule.
func isPublic(a netip.Addr) bool {
	_, special := specialTable.find(a)
	return !special
}

// publicPart reports whether a network contains public addresses, and whether it contains others.
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

// CheckName returns why policies cannot open a canonical name. If they can, the reason is empty.
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
