package appliance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"

	"github.com/forkd/forkd/internal/images/initramfs"
	"github.com/forkd/forkd/internal/machine/appliance/guest"
)

// Network is what the machine's daemon is told about sandboxes' networks. It is plain data, kept in
// the state file, which is the user's alone: the proxy may have a password in it.
type Network struct {
	// Ceiling is none, public, or a policy as JSON; empty: none is set, and all that is opened may be reached.
	Ceiling string `json:"ceiling,omitempty"`
	// Private are CIDRs that policies may allow.
	Private []string `json:"private,omitempty"`
	// HostPorts are ports of the host that policies may allow; nil: those that anybody may listen at.
	HostPorts []string `json:"host_ports"`
	// Own are addresses by which the host is reached, which nothing in the machine may reach.
	Own []string `json:"own,omitempty"`
	// Upstream is the URL of the proxy that sandboxes' TCP goes through; empty: none.
	Upstream string `json:"upstream,omitempty"`
}

// NetworkChange says what is to be another from now on: what is nil stays.
type NetworkChange struct {
	Ceiling, Upstream  *string
	Private, HostPorts *[]string
	Own                *[]string
}

// changed is the network with a change.
func (n Network) changed(c NetworkChange) Network {
	if c.Ceiling != nil {
		n.Ceiling = *c.Ceiling
	}
	if c.Upstream != nil {
		n.Upstream = *c.Upstream
	}
	if c.Private != nil {
		n.Private = *c.Private
	}
	if c.Own != nil {
		n.Own = *c.Own
	}
	if c.HostPorts != nil {
		n.HostPorts = append([]string{}, *c.HostPorts...) // none is not nil
	}
	return n
}

// same compares as the state file has them.
func (n Network) same(other Network) bool {
	a, err := json.Marshal(n)
	b, err2 := json.Marshal(other)
	return err == nil && err2 == nil && bytes.Equal(a, b)
}

// differing names the parts of a network that another has otherwise.
func (n Network) differing(other Network) (parts []string) {
	for _, part := range []struct {
		name  string
		equal bool
	}{
		{"ceiling of sandboxes' networks", n.Ceiling == other.Ceiling},
		{"list of private networks", slices.Equal(n.Private, other.Private)},
		{"list of the host's ports", slices.Equal(n.HostPorts, other.HostPorts) && (n.HostPorts == nil) == (other.HostPorts == nil)},
		{"list of the host's addresses", slices.Equal(n.Own, other.Own)},
		{"upstream proxy", n.Upstream == other.Upstream},
	} {
		if !part.equal {
			parts = append(parts, part.name)
		}
	}
	return parts
}

// Files of the machine that its daemon reads its network from.
const (
	guestCeiling  = "/etc/forkd/ceiling.yaml"
	guestUpstream = "/etc/forkd/upstream-proxy"
)

// unprivileged are the ports of the host that are opened if nobody says which: those below belong
// to the host's own services.
const unprivileged = "1024-65535"

// named reports whether the ceiling is a word that the daemon knows.
func (n Network) named() bool { return n.Ceiling == "none" || n.Ceiling == "public" }

// args are the flags of the machine's daemon.
func (n Network) args() ([]string, error) {
	// Of the real host, whose user is the machine's: a policy has to name the port.
	args := []string{"--net-host-address", guest.HostAddress}
	ports := n.HostPorts
	if ports == nil {
		ports = []string{unprivileged}
	}
	for _, p := range ports {
		args = append(args, "--net-host-port", p)
	}
	for _, text := range n.Private {
		rest, err := outsideOfMachine(text)
		if err != nil {
			return nil, err
		}
		for _, p := range rest {
			args = append(args, "--net-private", p.String())
		}
	}
	for _, address := range n.Own {
		args = append(args, "--net-own-address", address)
	}
	switch {
	case n.named():
		args = append(args, "--net-ceiling", n.Ceiling)
	case n.Ceiling != "":
		args = append(args, "--net-ceiling", guestCeiling)
	}
	if n.Upstream != "" {
		args = append(args, "--net-upstream-proxy-file", guestUpstream)
	}
	return args, nil
}

// entries are the files that the flags name.
func (n Network) entries() (files []initramfs.Entry, err error) {
	if n.Ceiling != "" && !n.named() {
		files = append(files, initramfs.File(guestCeiling[1:], 0o600, []byte(n.Ceiling)))
	}
	if n.Upstream != "" {
		upstream, err := fromMachine(n.Upstream)
		if err != nil {
			return nil, err
		}
		files = append(files, initramfs.File(guestUpstream[1:], 0o600, []byte(upstream)))
	}
	return files, nil
}

// fromMachine is a proxy's URL as the machine knows it: the host's loopback is elsewhere there.
func fromMachine(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("upstream proxy: want a URL") // which is not quoted: it may have a password
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() == "localhost" || err == nil && addr.IsLoopback() {
		u.Host = net.JoinHostPort(guest.HostAddress, cmp.Or(u.Port(), "1080"))
	}
	return u.String(), nil
}

// outsideOfMachine is a private network without the machine's own, in which the host's loopback is:
// a CIDR that happens to be around it must not open that.
func outsideOfMachine(text string) ([]netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return nil, fmt.Errorf("private network %q: want a CIDR", text)
	}
	rest := []netip.Prefix{p.Masked()}
	for _, hole := range guest.OwnNetworks() {
		var left []netip.Prefix
		for _, q := range rest {
			left = append(left, without(q, hole)...)
		}
		rest = left
	}
	if len(rest) == 0 {
		return nil, fmt.Errorf("private network %s: it is the machine's own, which sandboxes do not reach", text)
	}
	return rest, nil
}

// without is a prefix less the part of it that is in the hole.
func without(p, hole netip.Prefix) []netip.Prefix {
	switch {
	case !p.Overlaps(hole):
		return []netip.Prefix{p}
	case p.Bits() >= hole.Bits():
		return nil
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	b := p.Addr().AsSlice()
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	half, _ := netip.AddrFromSlice(b)
	return append(without(low, hole), without(netip.PrefixFrom(half, p.Bits()+1), hole)...)
}
