package netpolicy

import (
	"fmt"
	"maps"
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
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("headers[%d] for %s: %w", i, name, err)
		}
		t[name] = r.injected()
	}
	return t, nil
}

// check checks a rule's headers, literal ones and templates together.
func (h HeaderRule) check() error {
	all := maps.Clone(h.Headers)
	if all == nil {
		all = map[string]string{}
	}
	for name, text := range h.Secrets {
		if _, twice := all[name]; twice {
			return fmt.Errorf("%.64q is there twice", name)
		}
		if err := checkTemplate(name, text); err != nil {
			return err
		}
		all[name] = text
	}
	return checkHeaders(all)
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
		}
		if err := checkValue(name, value); err != nil {
			return err
		}
		seen[lower] = true
	}
	return nil
}

func checkValue(name, value string) error {
	switch {
	case len(value) > maxHeaderValue:
		return fmt.Errorf("the value of %s is longer than %d characters", name, maxHeaderValue)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return fmt.Errorf("the value of %s has a control character", name)
	}
	return nil
}

// tokenLetters are the characters of RFC 9110 5.6.2, in lowercase.
const tokenLetters = "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~"

// Headers returns the headers to set on requests to a canonical name. It may be nil. A host with
// headers is not thereby allowed. If the map has the name Incomplete, requests must be refused. The caller must not
// change the map.
func (p *Policy) Headers(name string) map[string]string { return p.sets[name] }
