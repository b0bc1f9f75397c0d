package netpolicy

import "strings"

// Bound returns the first part of a policy that binds it to one daemon, for people. It is empty for a policy that
// another daemon can enforce as well.
func (s Spec) Bound() string {
	switch {
	case len(s.Headers) > 0:
		return "it sets headers"
	case len(s.Sign) > 0:
		return "it signs requests"
	case s.Proxy != nil && (s.Proxy.User != "" || s.Proxy.Secret != "" || s.Proxy.Password != ""):
		return "its proxy has a password"
	case s.Proxy != nil && namesHost(s.Proxy.URL):
		return "its proxy is a port of the host"
	}
	for _, rule := range s.Allow {
		if namesHost(rule) {
			return "it allows ports of the host"
		}
	}
	if s.Within != nil {
		return s.Within.Bound()
	}
	return ""
}

func namesHost(text string) bool { return strings.Contains(strings.ToLower(text), HostName) }
