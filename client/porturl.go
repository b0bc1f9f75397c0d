package client

import (
	"net/netip"
	"net/url"
	"strings"

	"github.com/forkd/forkd/api"
)

// PortURL returns the URL of servers in a sandbox, with {port} in place of the port:
// http://{port}-sb5f3a00120001.forkd.localhost:8889/. way is the URL of the client that would reach
// the daemon. The result is empty if way cannot reach servers: it is a Unix socket, the daemon has
// no domain, or the daemon is on another host and its domain is a name of this host.
func PortURL(way string, daemon api.VersionInfo, sb api.SandboxInfo) string {
	u, err := url.Parse(way)
	if err != nil || u.Scheme == "unix" || u.Host == "" || daemon.Domain == "" || sb.DNSID == "" {
		return ""
	}
	if isLocalhost(daemon.Domain) && !isLocalhost(u.Hostname()) {
		return ""
	}
	host := "{port}-" + sb.DNSID + "." + daemon.Domain
	if port := u.Port(); port != "" {
		host += ":" + port
	}
	scheme := u.Scheme
	if scheme == "tcp" {
		scheme = "http"
	}
	return scheme + "://" + host + "/"
}

// isLocalhost reports whether name is a name or address of the asking host.
func isLocalhost(name string) bool {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.Unmap().IsLoopback()
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}
