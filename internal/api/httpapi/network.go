package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

type setNetworkInput struct {
	IDPath
	Body api.SetNetworkRequest
}

// networkRoutes show and change the network policies of running sandboxes, and show their network
// use.
type networkRoutes struct{ engine shown[roles.Networks] }

func (s *networkRoutes) add(rt *router) {
	tags := []string{"network"}
	path := "/v1/sandboxes/{id}/network"
	route(rt, huma.Operation{
		OperationID: "get-network", Method: http.MethodGet, Path: path, Tags: tags,
		Summary: "A sandbox's network policy", Errors: []int{400, 401, 404},
	}, s.get)
	route(rt, huma.Operation{
		OperationID: "set-network", Method: http.MethodPut, Path: path, Tags: tags,
		Summary:     "Change a running sandbox's network policy",
		Description: "Connections that the new policy denies are reset before the response.",
		Errors:      []int{400, 401, 404, 409, 502, 503},
	}, s.set)
	route(rt, huma.Operation{
		OperationID: "network-flows", Method: http.MethodGet, Path: path + "/flows", Tags: tags,
		Summary: "A sandbox's open connections", Errors: []int{400, 401, 404, 409, 502, 503},
	}, s.flows)
	rt.rawRoute(huma.Operation{
		OperationID: "network-log", Method: http.MethodGet, Path: path + "/log", Tags: tags,
		Summary: "A sandbox's last refused connections",
		Parameters: []*huma.Param{{Name: "follow", In: "query",
			Description: "Go on with all connections, as they end or are refused", Schema: &huma.Schema{Type: "boolean"}}},
		Responses: map[string]*huma.Response{"200": {Description: "A JSON object per line",
			Content: map[string]*huma.MediaType{ndjson: {Schema: &huma.Schema{Type: "object"}}}}},
		Errors: []int{400, 401, 404, 409, 502, 503},
	}, s.log)
}

func (s *networkRoutes) get(ctx context.Context, in *IDPath) (*body[api.SandboxNetwork], error) {
	n, err := s.engine(ctx).Network(in.ID)
	if err != nil {
		return nil, err
	}
	return &body[api.SandboxNetwork]{wireNetwork(n)}, nil
}

func (s *networkRoutes) set(ctx context.Context, in *setNetworkInput) (*body[api.SandboxNetwork], error) {
	spec, err := policyOf(in.Body.Net, in.Body.Network)
	if err != nil {
		return nil, err
	}
	if spec == nil {
		return nil, apierror.New(api.CodeInvalid, "", "network: want a policy, or net by its name")
	}
	n, err := s.engine(ctx).SetNetwork(ctx, in.ID, sandbox.NetworkRequest{Policy: *spec})
	if err != nil {
		return nil, err
	}
	return &body[api.SandboxNetwork]{wireNetwork(n)}, nil
}

func (s *networkRoutes) flows(ctx context.Context, in *IDPath) (*body[[]api.NetworkFlow], error) {
	flows, err := s.engine(ctx).Flows(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	out := make([]api.NetworkFlow, 0, len(flows))
	for _, f := range flows {
		out = append(out, api.NetworkFlow(f))
	}
	return &body[[]api.NetworkFlow]{out}, nil
}

// log streams lines as forkd-net writes them. It sends the status with the first line, or
// immediately if the first line may take a while.
func (s *networkRoutes) log(w http.ResponseWriter, r *http.Request) error {
	follow := false
	if v := r.URL.Query().Get("follow"); v != "" {
		var err error
		if follow, err = strconv.ParseBool(v); err != nil {
			return apierror.New(api.CodeInvalid, "", "follow %q: want true or false", ellipsis.Clip(v, 40))
		}
	}
	id := r.PathValue("id")
	if _, err := s.engine(r.Context()).Network(id); err != nil {
		return err
	}
	out := http.NewResponseController(w)
	begun := false
	begin := func() {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", ndjson)
			w.WriteHeader(http.StatusOK)
		}
	}
	if follow {
		begin()
		_ = out.Flush() // the client sees that it is connected
	}
	err := s.engine(r.Context()).NetworkLog(r.Context(), id, follow, func(line []byte) error {
		begin()
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
		return out.Flush()
	})
	switch {
	case err == nil:
		begin()
		return nil
	case begun:
		panic(http.ErrAbortHandler) // the status is sent: reset the connection, so that the client does not see a normal end
	}
	return err
}

// networkOf returns the tap or the policy of a request, or neither if the request names no network.
func networkOf(name api.Net, p *api.NetworkPolicy) (spec *netpolicy.Spec, tap string, err error) {
	if p == nil || p.Tap == "" {
		spec, err = policyOf(name, p)
		return spec, "", err
	}
	if name != "" || !reflect.DeepEqual(*p, api.NetworkPolicy{Tap: p.Tap}) {
		return nil, "", apierror.New(api.CodeInvalid, api.ReasonNetTap,
			"network: a tap takes no policy, because its network is the operator's")
	}
	return nil, p.Tap, nil
}

// policyOf returns the policy of a request, given by name or in full. It returns nil if the request
// has no policy.
func policyOf(name api.Net, p *api.NetworkPolicy) (*netpolicy.Spec, error) {
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

func wirePolicy(s netpolicy.Spec) api.NetworkPolicy {
	p := api.NetworkPolicy{Default: string(s.Default), Allow: s.Allow, Deny: s.Deny, HTTPSPorts: s.HTTPSPorts}
	if p.Default == "" {
		p.Default = string(netpolicy.Deny)
	}
	for _, h := range s.Headers {
		p.Headers = append(p.Headers, api.HeaderRule{Host: h.Host, Headers: h.Headers, Secrets: h.Secrets})
	}
	p.Sign = wireSign(s.Sign)
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

func wireSign(rules []netpolicy.SignRule) []api.SignRule {
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

func wireSummary(n sandbox.Network) api.NetworkSummary {
	return api.NetworkSummary{
		Policy: api.Net(n.Policy()), Allow: len(n.Effective.Allow), Deny: len(n.Effective.Deny), Cut: n.Cut, Tap: n.Tap,
	}
}

func wireNetwork(n sandbox.Network) api.SandboxNetwork {
	out := api.SandboxNetwork{
		NetworkSummary: wireSummary(n), Network: wirePolicy(n.Asked), Effective: wirePolicy(n.Effective),
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
	s := wireSummary(i.Network)
	return &s
}

// wireDefault returns a snapshot's policy, if it has one.
func wireDefault(s *netpolicy.Spec) *api.NetworkPolicy {
	if s == nil {
		return nil
	}
	p := wirePolicy(*s)
	return &p
}
