package netpolicy

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// A template is a header's value with names of secrets in braces, such as "Bearer {API_KEY}". Templates are in a
// field of their own, so that no literal value can be taken for one.
var secretInTemplate = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_-]{0,63})\}`)

// secretName is the form of a secret's name.
var secretName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// checkTemplate returns an error unless a template names a secret and has no other braces.
func checkTemplate(header, text string) error {
	rest := secretInTemplate.ReplaceAllString(text, "")
	switch {
	case rest == text:
		return fmt.Errorf("secrets: %s names no secret: want text with a name in braces, such as Bearer {API_KEY}", header)
	case strings.ContainsAny(rest, "{}"):
		return fmt.Errorf("secrets: %s: a brace belongs to no name of a secret", header)
	}
	return nil
}

// Refers reports whether a policy refers to secrets.
func (s Spec) Refers() bool {
	for _, r := range s.Sign {
		if r.Secrets != (SignSecrets{}) {
			return true
		}
	}
	if s.Proxy != nil && s.Proxy.Secret != "" {
		return true
	}
	for _, h := range s.Headers {
		if len(h.Secrets) > 0 {
			return true
		}
	}
	return false
}

// WithSecrets returns the policy with the values in place of its references. A rule with a secret that value cannot
// return gets the reason instead: requests to its host are then refused. Specs without references are returned
// unchanged.
func (s Spec) WithSecrets(value func(name string) (string, error)) Spec {
	if !s.Refers() {
		return s
	}
	rules := make([]HeaderRule, len(s.Headers))
	for i, h := range s.Headers {
		rules[i] = h.resolved(value)
	}
	s.Headers, s.Proxy = rules, s.Proxy.resolved(value)
	s.Sign = changed(s.Sign, func(r SignRule) SignRule { return r.resolved(value) })
	return s
}

func (h HeaderRule) resolved(value func(string) (string, error)) HeaderRule {
	if len(h.Secrets) == 0 {
		return h
	}
	out := HeaderRule{Host: h.Host, Headers: map[string]string{}}
	for name, v := range h.Headers {
		out.Headers[name] = v
	}
	for name, template := range h.Secrets {
		var failed error
		text := secretInTemplate.ReplaceAllStringFunc(template, func(m string) string {
			v, err := value(m[1 : len(m)-1])
			failed = errors.Join(failed, err)
			return v
		})
		if failed == nil && checkValue(name, text) != nil {
			failed = fmt.Errorf("the value of a secret for the header %s is not valid there", name)
		}
		if failed != nil {
			return HeaderRule{Host: h.Host, Secrets: h.Secrets, Missing: failed.Error()}
		}
		out.Headers[name] = text
	}
	return out
}

// WithoutReferences returns the policy without references to secrets, for another owner: they would name that owner's
// secrets.
func (s Spec) WithoutReferences() Spec {
	if !s.Refers() {
		return s
	}
	var rules []HeaderRule
	for _, h := range s.Headers {
		if h.Secrets = nil; len(h.Headers) > 0 {
			rules = append(rules, h)
		}
	}
	s.Headers, s.Proxy = rules, s.Proxy.withoutReference()
	s.Sign = changed(s.Sign, SignRule.withoutReference)
	return s
}

// ReferencesOnly returns the policy without literal headers and passwords, which may be secrets.
func (s Spec) ReferencesOnly() Spec {
	var rules []HeaderRule
	for _, h := range s.Headers {
		if h.Headers, h.Missing = nil, ""; len(h.Secrets) > 0 {
			rules = append(rules, h)
		}
	}
	s.Headers, s.Proxy = rules, s.Proxy.withoutText()
	s.Sign = changed(s.Sign, func(r SignRule) SignRule { r.Keys = nil; return r })
	return s
}

// Incomplete is the name in a policy's headers whose value is the reason why requests must be refused. No header has
// this name. It equals netproxy.Incomplete.
const Incomplete = ""

// injected returns the headers of a rule.
func (h HeaderRule) injected() map[string]string {
	if len(h.Secrets) == 0 && h.Missing == "" {
		return h.Headers
	}
	why := h.Missing
	if why == "" {
		why = "a secret for a header is not resolved"
	}
	return map[string]string{Incomplete: why}
}
