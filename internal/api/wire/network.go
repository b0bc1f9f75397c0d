package wire

import (
	"reflect"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// NetworkOf returns the tap or the policy of a request, or neither if the request names no network.
func NetworkOf(name api.Net, p *api.NetworkPolicy) (spec *netpolicy.Spec, tap string, err error) {
	if p == nil || p.Tap == "" {
		spec, err = PolicyOf(name, p)
		return spec, "", err
	}
	if name != "" || !reflect.DeepEqual(*p, api.NetworkPolicy{Tap: p.Tap}) {
		return nil, "", apierror.New(api.CodeInvalid, api.ReasonNetTap,
			"network: a tap takes no policy, because its network is the operator's")
	}
	return nil, p.Tap, nil
}

// PolicyOf returns the policy of a request, given by name or in full. It returns nil if the request
// has no policy.
func PolicyOf(name api.Net, p *api.NetworkPolicy) (*netpolicy.Spec, error) {
	switch {
	case name != "" && p != nil:
		return nil, apierror.New(api.CodeInvalid, "", "net and network exclude each other: omit one")
	case name == api.NetPublic:
		return &netpolicy.Spec{Default: netpolicy.Public}, nil
	case name != "":
		return &netpolicy.Spec{Default: netpolicy.Deny}, nil
	case p == nil:
		return nil, nil
	case p.Tap != "":
		return nil, apierror.New(api.CodeInvalid, api.ReasonNetTap,
			"network: a tap serves one forked sandbox, or a snapshot while it is made")
	}
	s := netpolicy.Spec{
		Default: netpolicy.Default(p.Default), Allow: p.Allow, Deny: p.Deny, HTTPSPorts: p.HTTPSPorts,
	}
	for _, h := range p.Headers {
		s.Headers = append(s.Headers, netpolicy.HeaderRule{Host: h.Host, Headers: h.Headers, Secrets: h.Secrets})
	}
	s.Sign = rulesOf(p.Sign)
	if x := p.Proxy; x != nil {
		s.Proxy = &netpolicy.ProxyRule{URL: x.URL, User: x.User, Secret: x.Secret, Names: x.Names}
	}
	if p.Limits != nil {
		s.Limits = netpolicy.Limits(*p.Limits)
	}
	return &s, nil
}

func policy(s netpolicy.Spec) api.NetworkPolicy {
	p := api.NetworkPolicy{Default: string(s.Default), Allow: s.Allow, Deny: s.Deny, HTTPSPorts: s.HTTPSPorts}
	if p.Default == "" {
		p.Default = string(netpolicy.Deny)
	}
	for _, h := range s.Headers {
		p.Headers = append(p.Headers, api.HeaderRule{Host: h.Host, Headers: h.Headers, Secrets: h.Secrets})
	}
	p.Sign = signRules(s.Sign)
	if x := s.Proxy; x != nil {
		p.Proxy = &api.NetworkProxy{URL: x.URL, User: x.User, Secret: x.Secret, Names: x.Names}
	}
	if s.Limits != (netpolicy.Limits{}) {
		l := api.NetworkLimits(s.Limits)
		p.Limits = &l
	}
	return p
}

func rulesOf(sign []api.SignRule) []netpolicy.SignRule {
	var rules []netpolicy.SignRule
	for _, r := range sign {
		rule := netpolicy.SignRule{Host: r.Host, Region: r.Region, Secrets: netpolicy.SignSecrets(r.Secrets)}
		for _, b := range r.Buckets {
			rule.Buckets = append(rule.Buckets, netpolicy.BucketRule(b))
		}
		rules = append(rules, rule)
	}
	return rules
}

func signRules(rules []netpolicy.SignRule) []api.SignRule {
	var sign []api.SignRule
	for _, r := range rules {
		rule := api.SignRule{Host: r.Host, Region: r.Region, Secrets: api.SignSecrets(r.Secrets)}
		for _, b := range r.Buckets {
			rule.Buckets = append(rule.Buckets, api.BucketRule(b))
		}
		sign = append(sign, rule)
	}
	return sign
}

func networkSummary(n sandbox.Network) api.NetworkSummary {
	return api.NetworkSummary{
		Policy: api.Net(n.Policy()), Allow: len(n.Effective.Allow), Deny: len(n.Effective.Deny), Cut: n.Cut, Tap: n.Tap,
	}
}

// Network converts the network of a sandbox.
func Network(n sandbox.Network) api.SandboxNetwork {
	out := api.SandboxNetwork{
		NetworkSummary: networkSummary(n), Network: policy(n.Asked), Effective: policy(n.Effective),
		Warning: n.Warning,
	}
	if n.Tap != "" {
		out.Network = api.NetworkPolicy{Tap: n.Tap}
	}
	return out
}

// summary returns nil for an ended sandbox.
func summary(i sandbox.Info) *api.NetworkSummary {
	if i.Status == sandbox.StatusFailed {
		return nil
	}
	s := networkSummary(i.Network)
	return &s
}

// defaultPolicy returns a snapshot's policy, if it has one.
func defaultPolicy(s *netpolicy.Spec) *api.NetworkPolicy {
	if s == nil {
		return nil
	}
	p := policy(*s)
	return &p
}
