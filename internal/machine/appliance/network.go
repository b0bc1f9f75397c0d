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

// Network holds the machine daemon's settings for sandboxes' networks. It is plain data in the state file, which
// only the user can read, because the proxy may contain a password.
type Network struct {
	// Ceiling is none, public, or a policy as JSON. If empty, there is no ceiling, and all opened networks may be
	// reached.
	Ceiling string `json:"ceiling,omitempty"`
	// Private lists CIDRs that policies may allow.
	Private []string `json:"private,omitempty"`
	// HostPorts lists ports of the host that policies may allow. If nil, they are the unprivileged ports.
	HostPorts []string `json:"host_ports"`
	// Own lists addresses of the host that must be unreachable from the machine.
	Own []string `json:"own,omitempty"`
	// Upstream is the URL of the proxy for sandboxes' TCP; empty for no proxy.
	Upstream string `json:"upstream,omitempty"`
}

// NetworkChange changes network settings. Nil fields are kept.
type NetworkChange struct {
	Ceiling, Upstream  *string
	Private, HostPorts *[]string
	Own                *[]string
}

// changed returns the settings with a change applied.
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
		n.HostPorts = append([]string{}, *c.HostPorts...) // an empty list is not nil
	}
	return n
}

// same compares the settings in the form of the state file.
func (n Network) same(other Network) bool {
	a, err := json.Marshal(n)
	b, err2 := json.Marshal(other)
	return err == nil && err2 == nil && bytes.Equal(a, b)
}

// differing returns the names of the settings that differ.
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

// Files from which the machine's daemon reads its network settings.
const (
	guestCeiling  = "/etc/forkd/ceiling.yaml"
	guestUpstream = "/etc/forkd/upstream-proxy"
)

// unprivileged is the default for the host's ports that may be allowed: lower ports belong to the host's own
// services.
const unprivileged = "1024-65535"

// named reports whether the ceiling is a keyword of the daemon.
func (n Network) named() bool { return n.Ceiling == "none" || n.Ceiling == "public" }

// args returns the flags for the machine's daemon.
func (n Network) args() ([]string, error) {
	// This is the real host, which belongs to the machine's user. A policy has to name the port.
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

// entries returns the files named in the flags.
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

// fromMachine returns a proxy's URL for use in the machine, where the host's loopback has another address.
func fromMachine(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("upstream proxy: want a URL") // not quoted, because it may contain a password
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() == "localhost" || err == nil && addr.IsLoopback() {
		u.Host = net.JoinHostPort(guest.HostAddress, cmp.Or(u.Port(), "1080"))
	}
	return u.String(), nil
}

// outsideOfMachine returns a private network without the machine's own networks, which contain the host's
// loopback. A CIDR that contains them must not open it.
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

// without returns the parts of a prefix outside of the hole.
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
