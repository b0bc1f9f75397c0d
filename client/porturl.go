package client

import (
	"net/netip"
	"net/url"
	"strings"

	"github.com/forkd/forkd/api"
)

// PortURL is the URL of servers in a sandbox with {port} for the port that they listen on:
// http://{port}-sb5f3a00120001.forkd.localhost:8889/. way is the URL of the client that would
// reach the daemon. It is empty if there is none by that way: a Unix socket, a daemon without a
// domain, or one on another host whose domain is a name of this one.
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

// isLocalhost tells names and addresses of the host that asks.
func isLocalhost(name string) bool {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.Unmap().IsLoopback()
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}
