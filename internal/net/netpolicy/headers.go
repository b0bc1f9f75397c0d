package netpolicy

import (
	"fmt"
	"slices"
	"strings"
)

// Limits of header rules. They are E2B's where it has them.
const (
	maxHeaderRules = 10
	maxHeaders     = 20
	maxHeaderName  = 64
	maxHeaderValue = 2048
)

// reservedHeaders control the destination and the end of a request. Setting them would allow
// request smuggling.
var reservedHeaders = []string{
	"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "keep-alive",
	"proxy-connection",
}

// headerTable maps a canonical host name to its headers.
type headerTable map[string]map[string]string

func compileHeaders(rules []HeaderRule) (headerTable, error) {
	if len(rules) > maxHeaderRules {
		return nil, fmt.Errorf("headers: %d hosts are too many: at most %d", len(rules), maxHeaderRules)
	}
	t := headerTable{}
	for i, r := range rules {
		if strings.HasPrefix(r.Host, "*") {
			return nil, fmt.Errorf("headers[%d]: host %q: headers are for one host, without *", i, r.Host)
		}
		name, err := CanonicalName(r.Host)
		if err != nil {
			return nil, fmt.Errorf("headers[%d]: host: %w", i, err)
		}
		if t[name] != nil {
			return nil, fmt.Errorf("headers[%d]: %s has headers already", i, name)
		}
		if err := checkHeaders(r.Headers); err != nil {
			return nil, fmt.Errorf("headers[%d] for %s: %w", i, name, err)
		}
		t[name] = r.Headers
	}
	return t, nil
}

// checkHeaders never puts a value into an error, because it may be a secret.
func checkHeaders(headers map[string]string) error {
	if len(headers) == 0 || len(headers) > maxHeaders {
		return fmt.Errorf("%d headers: there are 1 to %d", len(headers), maxHeaders)
	}
	seen := map[string]bool{}
	for name, value := range headers {
		lower := strings.ToLower(name)
		switch {
		case name == "" || len(name) > maxHeaderName || strings.Trim(lower, tokenLetters) != "":
			return fmt.Errorf("%.64q is no header's name", name)
		case slices.Contains(reservedHeaders, lower):
			return fmt.Errorf("%s is not for rules to set", name)
		case seen[lower]:
			return fmt.Errorf("%s is there twice", name)
		case len(value) > maxHeaderValue:
			return fmt.Errorf("the value of %s is longer than %d characters", name, maxHeaderValue)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return fmt.Errorf("the value of %s has a control character", name)
		}
		seen[lower] = true
	}
	return nil
}

// tokenLetters are the characters of RFC 9110 5.6.2, in lowercase.
const tokenLetters = "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~"

// Headers returns the headers to set on requests to a canonical name. It may be nil. A host with
// headers is not thereby allowed. The caller must not change the map.
func (p *Policy) Headers(name string) map[string]string { return p.sets[name] }
