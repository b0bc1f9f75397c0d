package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/forkd/forkd/internal/leaf/proxyurl"
)

// Via is a policy's own proxy, compiled.
type Via struct {
	// URL is the proxy's URL. It has no credentials if Missing is set.
	URL proxyurl.URL
	// Host is the proxy's canonical name, or empty if Addr is its address.
	Host string
	// Addr is the proxy's address, or only its port if Host is its name.
	Addr netip.AddrPort
	// Names says that the proxy resolves names.
	Names bool
	// Missing is why connections must be refused, or empty.
	Missing string
	// Reach judges the proxy's own addresses. The sandbox's rules are not in it, but the floor and the ceiling are.
	Reach *Policy

	rule ProxyRule
}

// Same reports whether two proxies are the same, with the same credentials. Both may be nil.
func (v *Via) Same(o *Via) bool {
	if v == nil || o == nil {
		return v == o
	}
	return v.rule == o.rule
}

// Proxy returns the policy's own proxy, or nil.
func (p *Policy) Proxy() *Via { return p.via }

func compileProxy(rule *ProxyRule, b Bounds) (*Via, error) {
	if rule == nil {
		return nil, nil
	}
	v := &Via{Names: rule.Names, Missing: rule.Missing, rule: *rule}
	address, err := v.locate()
	if err != nil {
		return nil, fmt.Errorf("proxy: url: %w", err)
	}
	if err := v.login(); err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	if v.Reach, err = CompileWithin(Spec{Allow: []string{address + "/tcp"}}, b); err != nil {
		return nil, fmt.Errorf("proxy: url: %w", err)
	}
	return v, nil
}

// locate sets the proxy's name or address, and returns it with its port.
func (v *Via) locate() (string, error) {
	u, err := proxyurl.Parse(v.rule.URL)
	if err != nil {
		return "", err
	}
	if u.User != "" {
		return "", errors.New("put the user name into user, and the name of a secret into secret")
	}
	v.URL = u
	if addr, err := netip.ParseAddr(u.Host); err == nil {
		if addr.Zone() != "" {
			return "", errors.New("an address has no zone here")
		}
		v.Addr = netip.AddrPortFrom(Unwrap(addr), u.Port)
		return v.Addr.String(), nil
	}
	if v.Host, err = CanonicalName(u.Host); err != nil {
		return "", err
	}
	if v.Host == Zone || isBelow(v.Host, Zone) {
		return "", fmt.Errorf("%s is no proxy's name: ports of the host are not for proxies", v.Host)
	}
	v.Addr = netip.AddrPortFrom(netip.Addr{}, u.Port)
	return u.Address(), nil
}

// login sets the credentials, or Missing.
func (v *Via) login() error {
	r := v.rule
	switch {
	case (r.User == "") != (r.Secret == "" && r.Password == ""):
		return errors.New("user and secret go together: secret is the name of your secret with the password")
	case r.User == "":
		return nil
	case r.Secret == "" && !proxyurl.IsLogin(r.Password):
		return fmt.Errorf("password: want 1 to %d characters without control characters", proxyurl.MaxLogin)
	case r.Secret != "" && !secretName.MatchString(r.Secret):
		return fmt.Errorf("secret: %.64q is no name of a secret", r.Secret)
	case !proxyurl.IsLogin(r.User) || strings.Contains(r.User, ":"):
		return fmt.Errorf("user: want 1 to %d characters without colons and control characters", proxyurl.MaxLogin)
	case v.Missing == "" && !proxyurl.IsLogin(r.Password):
		v.Missing = "the secret of the proxy is not resolved"
	}
	if v.Missing != "" {
		return nil
	}
	var err error
	v.URL, err = v.URL.With(r.User, r.Password)
	return err
}

// resolved returns the rule with its password.
func (r *ProxyRule) resolved(value func(string) (string, error)) *ProxyRule {
	if r == nil || r.Secret == "" || r.Missing != "" {
		return r
	}
	out := *r
	password, err := value(r.Secret)
	if err == nil && !proxyurl.IsLogin(password) {
		err = fmt.Errorf("the secret %s is no password for a proxy: want 1 to %d characters without control characters",
			r.Secret, proxyurl.MaxLogin)
	}
	if err != nil {
		out.Missing = err.Error()
		return &out
	}
	out.Password = password
	return &out
}

// withoutText returns the rule without a password given as text. Connections are refused then, as in
// withoutReference.
func (r *ProxyRule) withoutText() *ProxyRule {
	if r == nil || r.Secret != "" || r.Password == "" {
		return r
	}
	out := *r
	out.User, out.Password = "", ""
	out.Missing = "the password of the proxy was given as text, so only the sandbox that it was given to has it: " +
		"set the policy again, or store the password as a secret"
	return &out
}

// withoutReference returns the rule for another owner, whose secrets it must not name. Connections are refused then:
// without the proxy they would take another way than the policy's author wanted.
func (r *ProxyRule) withoutReference() *ProxyRule {
	if r == nil || r.Secret == "" {
		return r
	}
	out := *r
	out.User, out.Secret, out.Password = "", "", ""
	out.Missing = "the password of the proxy belongs to another tenant: set a policy with a secret of yours"
	return &out
}
