package auditing

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/keys"
)

// anonymous is the principal of a request without a valid credential.
const anonymous = "anonymous"

// unproved returns the audit line of a client without a proved identity. It marks identity fields
// as claims.
func unproved(e audit.Entry, r *http.Request) audit.Entry {
	e.Anonymous, e.Source, e.Claim = true, Source(r), claimOf(r)
	e.Tenant, e.Key, e.KeyName, e.Count = "", "", "", 0
	if e.Principal == "" || e.Status == http.StatusUnauthorized {
		e.Principal = anonymous
	}
	return e
}

// Source returns the address of a request's sender. For IPv6 it is the /64, because a client can
// use all of it. Over a Unix socket it is the sender's user, as in "uid 1000".
func Source(r *http.Request) string {
	if p, ok := auth.PeerOf(r.Context()); ok {
		return fmt.Sprintf("uid %d", p.UID)
	}
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	if net, err := ip.Prefix(64); err == nil {
		return net.String()
	}
	return ip.String()
}

// claimOf returns the kind of credential in a request, never its text.
func claimOf(r *http.Request) string {
	var shown []string
	for _, header := range r.Header.Values("Authorization") {
		switch token, isBearer := auth.Bearer(header); {
		case isBearer && keys.Looks(token):
			shown = append(shown, "key")
		case isBearer:
			shown = append(shown, "token")
		case header != "":
			shown = append(shown, "authorization")
		}
	}
	if len(r.Header.Values(api.HeaderKey)) > 0 {
		shown = append(shown, "key")
	}
	if len(r.Header.Values("X-Access-Token")) > 0 || r.URL.Query().Get("signature") != "" {
		shown = append(shown, "sandbox token")
	}
	return strings.Join(shown[:min(len(shown), 4)], ", ")
}
