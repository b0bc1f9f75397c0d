package e2bapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/api/e2bapi/target"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// networkConfig is a client's configuration of a sandbox's network.
type networkConfig struct {
	AllowOut []string `json:"allowOut,omitempty"`
	DenyOut  []string `json:"denyOut,omitempty"`
	// DNS is not used: guests ask the gateway, which applies the policy to names.
	DNS        []string                 `json:"dnsServers,omitempty"`
	Rules      map[string][]networkRule `json:"rules,omitempty"`
	Proxy      *egressProxy             `json:"egressProxy,omitempty"`
	Public     *bool                    `json:"allowPublicTraffic,omitempty"`
	MaskHost   string                   `json:"maskRequestHost,omitempty"`
	HTTPSPorts []uint16                 `json:"httpsPorts,omitempty"`
}

type networkRule struct {
	Transform *struct {
		Headers map[string]string `json:"headers"`
	} `json:"transform,omitempty"`
}

// maxRules limits each list.
const maxRules = 1000

// shown returns the configuration for GET. Headers and the proxy's password may be secrets, and are left out.
func (n networkConfig) shown() json.RawMessage {
	n.Rules = nil
	if n.Proxy != nil {
		n.Proxy = &egressProxy{Address: n.Proxy.Address, User: n.Proxy.User}
	}
	b, err := json.Marshal(n)
	if err != nil || string(b) == "{}" {
		return nil
	}
	return b
}

// checkHTTPSPorts refuses ports that a server with TLS cannot have.
func checkHTTPSPorts(ports []uint16) error {
	if len(ports) > records.MaxHTTPSPorts {
		return invalidf("httpsPorts: %d ports, want at most %d", len(ports), records.MaxHTTPSPorts)
	}
	if slices.Contains(ports, 0) || slices.Contains(ports, target.EnvdPort) {
		return invalidf("httpsPorts: want ports from 1 to 65535, except for %d, the agent's", target.EnvdPort)
	}
	return nil
}

// isAll reports whether a range stands for every address.
func isAll(s string) bool { return s == "0.0.0.0/0" || s == "::/0" || s == "*" }

// policy converts the configuration to the engine's policy. internet is allow_internet_access.
func (n networkConfig) policy(internet *bool) (netpolicy.Spec, error) {
	if err := checkHTTPSPorts(n.HTTPSPorts); err != nil {
		return netpolicy.Spec{}, err
	}
	if len(n.AllowOut) > maxRules || len(n.DenyOut) > maxRules || len(n.Rules) > maxRules {
		return netpolicy.Spec{}, invalidf("network: more than %d rules", maxRules)
	}
	proxy, err := n.Proxy.rule()
	if err != nil {
		return netpolicy.Spec{}, err
	}
	spec := netpolicy.Spec{Default: netpolicy.Public, Proxy: proxy}
	if internet != nil && !*internet {
		spec.Default = netpolicy.Deny
	}
	for _, rule := range n.DenyOut {
		switch {
		case isAll(rule):
			spec.Default = netpolicy.Deny
		case !isAddress(rule):
			return netpolicy.Spec{}, invalidf("denyOut %q: want an address or a CIDR", sandbox.Clip(rule))
		default:
			spec.Deny = append(spec.Deny, rule)
		}
	}
	for _, rule := range n.AllowOut {
		switch {
		case isAll(rule):
			spec.Default = netpolicy.Public
		case !isAddress(rule) && spec.Default != netpolicy.Deny:
			return netpolicy.Spec{}, invalidf("allowOut %q: domains require denyOut to contain 0.0.0.0/0", sandbox.Clip(rule))
		default:
			spec.Allow = append(spec.Allow, strings.ToLower(rule))
		}
	}
	return spec, n.addHeaders(&spec)
}

func (n networkConfig) addHeaders(spec *netpolicy.Spec) error {
	for _, host := range slices.Sorted(maps.Keys(n.Rules)) {
		headers := map[string]string{}
		for _, rule := range n.Rules[host] {
			if rule.Transform != nil {
				maps.Copy(headers, rule.Transform.Headers)
			}
		}
		rule, err := headerRule(strings.ToLower(host), headers)
		if err != nil {
			return err
		}
		if len(headers) > 0 {
			spec.Headers = append(spec.Headers, rule)
		}
	}
	return nil
}

// secretReference is the text of Secret.fill.
var secretReference = regexp.MustCompile(`\$\{e2b\.secrets\.([^{}]*)\}`)

// headerRule separates literal headers from headers with references to secrets. The engine resolves these, as for
// policies of the native API.
func headerRule(host string, headers map[string]string) (netpolicy.HeaderRule, error) {
	rule := netpolicy.HeaderRule{Host: host}
	for name, v := range headers {
		text := secretReference.ReplaceAllString(v, "{$1}")
		switch {
		case strings.Contains(text, "${e2b."):
			return rule, notYet("identity tokens in header transforms")
		case text == v:
			rule.Headers = with(rule.Headers, name, v)
		case strings.ContainsAny(secretReference.ReplaceAllString(v, ""), "{}"):
			return rule, invalidf("header %s: it has a secret, so it can have no other braces", sandbox.Clip(name))
		default:
			rule.Secrets = with(rule.Secrets, name, text)
		}
	}
	return rule, nil
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

func isAddress(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	_, err := netip.ParsePrefix(s)
	return err == nil
}

// maskedHost returns the Host header a server sees.
func maskedHost(mask string, port uint16) string {
	return strings.ReplaceAll(mask, "${PORT}", strconv.Itoa(int(port)))
}

func containsAny(s, chars string) bool { return strings.ContainsAny(s, chars) }

// setNetwork is PUT /sandboxes/{id}/network. It clears fields the request leaves out.
func (h *Handler) setNetwork(c call) (answer, error) {
	var req struct {
		networkConfig
		Internet *bool `json:"allow_internet_access"`
	}
	if err := c.decode(&req); err != nil {
		return answer{}, err
	}
	k, err := h.find(c)
	if err != nil {
		return answer{}, err
	}
	spec, err := req.networkConfig.policy(req.Internet)
	if err != nil {
		return answer{}, err
	}
	if k.info, err = settled(h, c, k.info); err != nil {
		return answer{}, err
	}
	if stateOf(k.info) != stateRunning {
		return answer{}, failf(http.StatusConflict, "sandbox %s is not running", sandbox.DNSID(k.info.ID))
	}
	if _, err := c.engine.SetNetwork(c.ctx, k.info.ID, sandbox.NetworkRequest{Policy: spec}); err != nil {
		return answer{}, err
	}
	k.rec.Network, k.rec.Internet, k.rec.HTTPSPorts = req.networkConfig.shown(), req.Internet, req.HTTPSPorts
	if err := h.remember(&k); err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, nil
}
