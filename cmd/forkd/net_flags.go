package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/vm/hostnet"
)

// netFlags are the flags for a sandbox's network policy.
type netFlags struct {
	net         string
	allow, deny []string
}

// addFlags adds the flags to a command. otherwise describes the policy without flags.
func (n *netFlags) addFlags(cmd *cobra.Command, otherwise string) {
	section(cmd.Flags(), "Network", func(f *pflag.FlagSet) {
		f.StringVar(&n.net, "net", "",
			"use network `POLICY`: none, public, a YAML policy file, or tap=NAME (default: "+otherwise+")")
		f.StringArrayVar(&n.allow, "allow", nil,
			"allow `RULE`, HOST[:PORT[-PORT]][/tcp|udp], such as pypi.org:443 or '*.example.com'; may be repeated")
		f.StringArrayVar(&n.deny, "deny", nil,
			"deny `RULE`, HOST[:PORT[-PORT]][/tcp|udp], with --net public or a policy file; may be repeated")
	})
	_ = cmd.RegisterFlagCompletionFunc("net", cobra.FixedCompletions(
		[]cobra.Completion{"none\tnothing", "public\tall public addresses"}, cobra.ShellCompDirectiveDefault))
}

// given reports whether one of the flags was given.
func (n *netFlags) given() bool { return n.net != "" || len(n.allow) > 0 || len(n.deny) > 0 }

// policy returns the policy of the flags, or nil without flags.
func (n *netFlags) policy() (*api.NetworkPolicy, error) {
	if !n.given() {
		return nil, nil
	}
	if name, is := strings.CutPrefix(n.net, tapPrefix); is {
		return n.tap(name)
	}
	spec, err := namedPolicy(n.net)
	if err != nil {
		return nil, exit.UsageError{Err: err}
	}
	return n.added(spec)
}

// tapPrefix precedes the name of a tap.
const tapPrefix = "tap="

// tap returns the policy for an operator's network, to which no rules apply.
func (n *netFlags) tap(name string) (*api.NetworkPolicy, error) {
	if err := hostnet.CheckName(name); err != nil {
		return nil, exit.UsageError{Err: fmt.Errorf("--net %q: %w", n.net, err)}
	}
	if len(n.allow) > 0 || len(n.deny) > 0 {
		return nil, exit.UsageError{Err: errors.New("--net tap=NAME takes no --allow and no --deny: " +
			"the operator controls its network")}
	}
	return &api.NetworkPolicy{Tap: name}, nil
}

// added returns a policy with the rules of the flags on top.
func (n *netFlags) added(p api.NetworkPolicy) (*api.NetworkPolicy, error) {
	for _, list := range []struct {
		flag  string
		rules []string
		to    *[]string
	}{{"--allow", n.allow, &p.Allow}, {"--deny", n.deny, &p.Deny}} {
		for _, text := range list.rules {
			if _, err := netpolicy.ParseRule(text); err != nil {
				return nil, exit.UsageError{Err: ruleOfFlag(list.flag, text, err)}
			}
		}
		*list.to = append(*list.to, list.rules...)
	}
	if len(n.deny) > 0 && p.Default != string(netpolicy.Public) && len(p.Allow) == 0 {
		return nil, exit.UsageError{Err: errors.New("--deny: the policy allows no connections; add --net public")}
	}
	return &p, nil
}

// ruleOfFlag describes an invalid rule with its original text.
func ruleOfFlag(flag, text string, err error) error {
	if rule := (*netpolicy.RuleError)(nil); errors.As(err, &rule) {
		return fmt.Errorf("%s %q: %s", flag, text, rule.Msg)
	}
	return fmt.Errorf("%s %q: %w", flag, text, err)
}

// namedPolicy returns a policy by its name, or from a file. Without a name it denies everything.
func namedPolicy(name string) (api.NetworkPolicy, error) {
	switch api.Net(name) {
	case "", api.NetNone:
		return api.NetworkPolicy{Default: string(netpolicy.Deny)}, nil
	case api.NetPublic:
		return api.NetworkPolicy{Default: string(netpolicy.Public)}, nil
	}
	spec, err := policyFile(name)
	if err != nil {
		return api.NetworkPolicy{}, fmt.Errorf("--net: %w", err)
	}
	p := api.NetworkPolicy{Default: string(spec.Default), Allow: spec.Allow, Deny: spec.Deny, HTTPSPorts: spec.HTTPSPorts}
	for _, h := range spec.Headers {
		p.Headers = append(p.Headers, api.HeaderRule{Host: h.Host, Headers: h.Headers, Secrets: h.Secrets})
	}
	for _, r := range spec.Sign {
		rule := api.SignRule{Host: r.Host, Region: r.Region, Secrets: api.SignSecrets(r.Secrets)}
		for _, b := range r.Buckets {
			rule.Buckets = append(rule.Buckets, api.BucketRule(b))
		}
		p.Sign = append(p.Sign, rule)
	}
	if x := spec.Proxy; x != nil {
		p.Proxy = &api.NetworkProxy{URL: x.URL, User: x.User, Secret: x.Secret, Names: x.Names}
	}
	if spec.Limits != (netpolicy.Limits{}) {
		l := api.NetworkLimits(spec.Limits)
		p.Limits = &l
	}
	return p, nil
}

// policyFile reads a policy. Its errors have the file and the line.
func policyFile(path string) (netpolicy.Spec, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return netpolicy.Spec{}, fmt.Errorf("%q: want none, public, or an existing policy file", path)
	}
	if err != nil {
		return netpolicy.Spec{}, err
	}
	return netpolicy.ParseFile(path, b)
}
