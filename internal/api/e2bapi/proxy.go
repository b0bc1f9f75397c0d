package e2bapi

import (
	"encoding/json"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// egressProxy is the client's SOCKS5 proxy for the TCP connections of a sandbox.
type egressProxy struct {
	Address  string          `json:"address"` // host:port
	User     string          `json:"username,omitempty"`
	Password string          `json:"password,omitempty"`
	TLS      json.RawMessage `json:"tls,omitempty"`
}

// rule converts the proxy to a rule of a policy.
func (p *egressProxy) rule() (*netpolicy.ProxyRule, error) {
	switch {
	case p == nil:
		return nil, nil
	case len(p.TLS) > 0 && string(p.TLS) != "null":
		return nil, notYet("egressProxy.tls")
	case p.Address == "":
		return nil, invalidf("egressProxy: the address is missing, want host:port")
	case (p.User == "") != (p.Password == ""):
		return nil, invalidf("egressProxy: want a username and a password, or neither")
	}
	of := secretReference.FindStringSubmatch(p.Password)
	if strings.Contains(p.Password, "${e2b.") && (of == nil || of[0] != p.Password) {
		return nil, invalidf("egressProxy: the password has the reference to a secret and other text")
	}
	rule := &netpolicy.ProxyRule{URL: "socks5://" + p.Address, User: p.User, Names: true, Password: p.Password}
	if of != nil {
		rule.Secret, rule.Password = of[1], ""
	}
	if _, err := netpolicy.Compile(netpolicy.Spec{Proxy: rule}); err != nil {
		return nil, invalidf("egressProxy %q: %v", sandbox.Clip(p.Address), err)
	}
	return rule, nil
}
