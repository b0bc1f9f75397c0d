package netpolicy

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Protocol is the protocol of a flow, by its IP number. Zero in a rule means any.
type Protocol uint8

// Protocols, numbered as in usernet. Echo stands for ICMP and ICMPv6 echo requests. They have no
// port, so only rules without port and protocol match them.
const (
	Echo Protocol = 1
	TCP  Protocol = 6
	UDP  Protocol = 17
)

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case Echo:
		return "echo"
	case 0:
		return "any"
	}
	return "protocol " + strconv.Itoa(int(p))
}

// Kind is the kind of a rule's host.
type Kind uint8

// Kinds of hosts.
const (
	Exact     Kind = iota + 1 // one name
	Below                     // *.domain: every name below the domain, at any depth, not the domain itself
	Addresses                 // an address or a CIDR
)

// Rule is one parsed rule.
type Rule struct {
	Text     string       // as the user wrote it, without surrounding blanks
	Kind     Kind         // kind of the host
	Name     string       // for Exact and Below: ASCII, lowercase, no final dot; for Below without "*."
	Prefix   netip.Prefix // for Addresses: masked, IPv4 unwrapped
	Low      uint16       // first port, or 0 for any port
	High     uint16       // last port
	Protocol Protocol     // zero means any
}

// RuleError describes an invalid rule and its correct form.
type RuleError struct {
	Rule string // as the user wrote it
	Msg  string // the mistake, without the rule
}

func (e *RuleError) Error() string { return fmt.Sprintf("rule %q: %s", e.Rule, e.Msg) }

// maxRule is the longest text of a rule: a name, a port range and a protocol.
const maxRule = 300

// ParseRule reads host[:port[-port]][/tcp|udp]. Its errors are *RuleError.
func ParseRule(text string) (Rule, error) {
	r := Rule{Text: strings.TrimSpace(text)}
	if err := r.parse(); err != nil {
		shown := r.Text
		if len(shown) > maxRule {
			shown = strings.ToValidUTF8(shown[:maxRule], "") + "..."
		}
		return Rule{}, &RuleError{Rule: shown, Msg: err.Error()}
	}
	return r, nil
}

func (r *Rule) parse() error {
	text := r.Text
	switch {
	case text == "":
		return fmt.Errorf("is empty; write host[:port[-port]][/tcp|udp]")
	case len(text) > maxRule:
		return fmt.Errorf("is longer than %d characters", maxRule)
	case strings.ContainsAny(text, " \t\r\n"):
		return fmt.Errorf("has a blank in it; write one host per rule")
	case strings.Contains(text, "://"):
		return fmt.Errorf("is a URL; write the host only, such as %q", hostOfURL(text))
	}
	rest, err := r.takeProtocol(text)
	if err != nil {
		return err
	}
	host, port, err := splitPort(rest)
	if err != nil {
		return err
	}
	if port != "" {
		if r.Low, r.High, err = parsePorts(port); err != nil {
			return err
		}
	}
	return r.setHost(host)
}

// hostOfURL returns the host of a URL.
func hostOfURL(text string) string {
	_, rest, _ := strings.Cut(text, "://")
	host, _, _ := strings.Cut(rest, "/")
	return host
}

// takeProtocol removes the protocol at the end. A number there is the length of a prefix.
func (r *Rule) takeProtocol(text string) (rest string, err error) {
	at := strings.LastIndexByte(text, '/')
	if at < 0 {
		return text, nil
	}
	last := text[at+1:]
	switch strings.ToLower(last) {
	case "tcp":
		r.Protocol = TCP
	case "udp":
		r.Protocol = UDP
	case "":
		return "", fmt.Errorf("ends with a slash; after it goes tcp, udp or the length of a prefix")
	default:
		if last[0] >= '0' && last[0] <= '9' {
			return text, nil
		}
		return "", fmt.Errorf("%q is no protocol: write /tcp, /udp, or nothing for both (paths cannot be in a rule)", last)
	}
	return text[:at], nil
}

// splitPort separates host and port. port is empty if there is none.
func splitPort(text string) (host, port string, err error) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		host, rest, closed := strings.Cut(inner, "]")
		switch {
		case !closed:
			return "", "", fmt.Errorf("has a [ without a ]; write [address]:port")
		case !strings.Contains(host, ":"):
			return "", "", fmt.Errorf("brackets are for IPv6 addresses, such as [2001:db8::1]:443")
		case rest == "":
			return host, "", nil
		case rest[0] != ':' || len(rest) == 1:
			return "", "", fmt.Errorf("after ] goes :port, not %q", rest)
		}
		return host, rest[1:], nil
	}
	switch strings.Count(text, ":") {
	case 0:
		return text, "", nil
	case 1:
		host, port, _ = strings.Cut(text, ":")
		if port == "" {
			return "", "", fmt.Errorf("ends with a colon; after it goes a port, or leave it away for every port")
		}
		return host, port, nil
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return text, "", nil
	}
	if _, err := netip.ParsePrefix(text); err == nil {
		return text, "", nil
	}
	// After a prefix's length, a colon can only begin a port.
	at := strings.LastIndexByte(text, ':')
	if _, err := netip.ParsePrefix(text[:at]); err == nil {
		return text[:at], text[at+1:], nil
	}
	return "", "", fmt.Errorf("has several colons and is no IPv6 address; " +
		"with a port write [address]:port, such as [2001:db8::1]:443")
}

func parsePorts(text string) (low, high uint16, err error) {
	if text == "*" {
		return 0, 0, fmt.Errorf("* is no port; leave the port away for every port")
	}
	first, last, isRange := strings.Cut(text, "-")
	if low, err = parsePort(first); err != nil {
		return 0, 0, err
	}
	if !isRange {
		return low, low, nil
	}
	if high, err = parsePort(last); err != nil {
		return 0, 0, err
	}
	if high < low {
		return 0, 0, fmt.Errorf("the ports %s run backwards; write %d-%d", text, high, low)
	}
	return low, high, nil
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || text[0] == '+' {
		return 0, fmt.Errorf("%q is no port: write a number from 1 to 65535, or a range such as 8000-8999", text)
	}
	return uint16(n), nil
}

func (r *Rule) setHost(host string) (err error) {
	switch {
	case host == "":
		return fmt.Errorf("has no host before the port; for every host write 0.0.0.0/0 and ::/0")
	case host == "*":
		return fmt.Errorf("* alone is no host; write default: public, or the rules 0.0.0.0/0 and ::/0")
	case strings.Contains(host, "/"):
		r.Kind = Addresses
		r.Prefix, err = parsePrefix(host)
		return err
	case strings.Contains(host, ":") || looksLikeIPv4(host):
		r.Kind = Addresses
		r.Prefix, err = parseOneAddress(host)
		return err
	}
	name, below := strings.CutPrefix(host, "*.")
	r.Kind = Exact
	if below {
		r.Kind = Below
	}
	r.Name, err = CanonicalName(name)
	return err
}

func parseOneAddress(host string) (netip.Prefix, error) {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is no IP address: %s", host, addressMistake(host))
	}
	if a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q has a zone; link-local addresses are never reachable", host)
	}
	a = Unwrap(a)
	return netip.PrefixFrom(a, a.BitLen()), nil
}

func addressMistake(host string) string {
	if strings.Contains(host, ":") {
		return "an IPv6 address has up to eight groups of hexadecimal digits"
	}
	return "an IPv4 address has four numbers from 0 to 255, without leading zeros"
}

func parsePrefix(host string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(host)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is no CIDR: write an address, / and a length, such as 198.51.100.0/24", host)
	}
	if p.Masked() != p {
		return netip.Prefix{}, fmt.Errorf("%s has bits beyond its length; write %s for the network, or %s for the address",
			p, p.Masked(), p.Addr())
	}
	return unwrapPrefix(p), nil
}

// unwrapPrefix converts a prefix of mapped or NAT64 addresses to IPv4, as Judge does with
// addresses.
func unwrapPrefix(p netip.Prefix) netip.Prefix {
	a := Unwrap(p.Addr())
	if a.Is4() && !p.Addr().Is4() && p.Bits() >= 96 {
		return netip.PrefixFrom(a, p.Bits()-96)
	}
	return p
}

// covers reports whether the rule matches a port and a protocol, whatever the host.
func (r *Rule) covers(proto Protocol, port uint16) bool {
	if r.Protocol != 0 && r.Protocol != proto {
		return false
	}
	if r.Low == 0 {
		return true
	}
	return proto != Echo && port >= r.Low && port <= r.High
}

// String returns the rule in its canonical form.
func (r Rule) String() string {
	host := r.Name
	switch r.Kind {
	case Below:
		host = "*." + r.Name
	case Addresses:
		host = r.Prefix.String()
		if r.Prefix.IsSingleIP() {
			host = r.Prefix.Addr().String()
		}
		if r.Low != 0 && r.Prefix.Addr().Is6() {
			host = "[" + host + "]"
		}
	}
	if r.Low != 0 {
		host += ":" + strconv.Itoa(int(r.Low))
		if r.High != r.Low {
			host += "-" + strconv.Itoa(int(r.High))
		}
	}
	if r.Protocol != 0 {
		host += "/" + r.Protocol.String()
	}
	return host
}
