package netpolicy

import (
	"net/netip"

	"github.com/forkd/forkd/internal/leaf/guestnet"
)

// special is a range that the floor closes.
type special struct {
	prefix   netip.Prefix
	name     string
	openable bool // an operator may open it, or a part of it
}

// specials are special-purpose ranges of three kinds: the ranges in IANA's registries for IPv4 and
// IPv6, unregistered ranges without public hosts, and the range of forkd's own link. A range inside
// another one is listed if its name is more specific. The registries are defined in RFC 6890 and
// its updates. This list is from 2025-05:
// https://www.iana.org/assignments/iana-ipv4-special-registry and
// https://www.iana.org/assignments/iana-ipv6-special-registry.
var specials = []special{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network", false},
	{netip.MustParsePrefix("10.0.0.0/8"), "private", true},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by carriers", true},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback", false},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local", false},
	{netip.MustParsePrefix("172.16.0.0/12"), "private", true},
	{netip.MustParsePrefix("192.0.0.0/24"), "IETF protocol assignments", false},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation", true},
	{netip.MustParsePrefix("192.31.196.0/24"), "AS112", true},
	{netip.MustParsePrefix("192.52.193.0/24"), "AMT", true},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relays", false},
	{netip.MustParsePrefix("192.168.0.0/16"), "private", true},
	{netip.MustParsePrefix("192.175.48.0/24"), "AS112", true},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarking", true},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation", true},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation", true},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast", false}, // has its own registry
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved", true},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast", false},

	{netip.MustParsePrefix("::/96"), "IPv4-compatible", false}, // RFC 4291 2.5.5.1; includes unspecified and loopback
	{netip.MustParsePrefix("::/128"), "unspecified", false},
	{netip.MustParsePrefix("::1/128"), "loopback", false},
	{netip.MustParsePrefix("::ffff:0:0/96"), "IPv4-mapped", false},       // judged as IPv4 before this check
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "IPv4-translated", false}, // RFC 2765
	{netip.MustParsePrefix("64:ff9b:1::/48"), "local NAT64", false},
	{netip.MustParsePrefix("100::/64"), "discard only", false},
	{netip.MustParsePrefix("100:0:0:1::/64"), "dummy", false},
	{netip.MustParsePrefix("2001::/23"), "IETF protocol assignments", false},
	{netip.MustParsePrefix("2001::/32"), "Teredo", false},
	{netip.MustParsePrefix("2001:2::/48"), "benchmarking", true},
	{netip.MustParsePrefix("2001:3::/32"), "AMT", true},
	{netip.MustParsePrefix("2001:4:112::/48"), "AS112", true},
	{netip.MustParsePrefix("2001:10::/28"), "ORCHID", false},
	{netip.MustParsePrefix("2001:20::/28"), "ORCHIDv2", false},
	{netip.MustParsePrefix("2001:30::/28"), "DRIP", false},
	{netip.MustParsePrefix("2001:db8::/32"), "documentation", true},
	{netip.MustParsePrefix("2002::/16"), "6to4", false},
	{netip.MustParsePrefix("2620:4f:8000::/48"), "AS112", true},
	{netip.MustParsePrefix("3fff::/20"), "documentation", true},
	{netip.MustParsePrefix("5f00::/16"), "segment routing", true},
	{netip.MustParsePrefix("fc00::/7"), "unique local", true},
	{guestnet.Block6, "forkd's own wire", false},
	{netip.MustParsePrefix("fe80::/10"), "link-local", false},
	{netip.MustParsePrefix("fec0::/10"), "site-local", false}, // RFC 3879
	{netip.MustParsePrefix("ff00::/8"), "multicast", false},
}

// metadata are the addresses of cloud services that hand out credentials or act for the host, in
// addition to link-local ones. No option opens them.
var metadata = []special{
	{netip.MustParsePrefix("100.100.100.200/32"), "Alibaba Cloud's metadata", false},
	{netip.MustParsePrefix("168.63.129.16/32"), "Azure's wire server", false},
	{netip.MustParsePrefix("192.0.0.192/32"), "Oracle Cloud's metadata", false},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, where clouds have their metadata", false},
	{netip.MustParsePrefix("fd00:ec2::/32"), "AWS's metadata, resolver and clock", false},
	{netip.MustParsePrefix("fd20:ce::/32"), "Google Cloud's metadata", false},
	{netip.MustParsePrefix("fd00:42::42/128"), "Scaleway's metadata", false},
	{netip.MustParsePrefix("fd00:a9fe:a9fe::/48"), "Akamai's metadata", false},
}

// closedNames never resolve for a guest, and cannot be the destination of a proxy. Names below them
// are closed, too.
var closedNames = map[string]string{
	"localhost":                    "this host (RFC 6761)",
	"invalid":                      "no name of the DNS (RFC 6761)",
	"onion":                        "no name of the DNS (RFC 7686)",
	"metadata":                     "a cloud's metadata",
	"metadata.google.internal":     "Google Cloud's metadata",
	"metadata.goog":                "Google Cloud's metadata",
	"instance-data":                "AWS's metadata",
	"instance-data.ec2.internal":   "AWS's metadata",
	"metadata.azure.internal":      "Azure's metadata",
	"metadata.tencentyun.com":      "Tencent Cloud's metadata",
	"metadata.platformequinix.com": "Equinix Metal's metadata",
	"metadata.packet.net":          "Equinix Metal's metadata",
}
