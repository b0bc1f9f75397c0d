package mcp

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

type byPort struct {
	bySandbox
	Port int `json:"port" jsonschema:"TCP port of a server in the sandbox, 1 to 65535; listening on its localhost is enough"`
}

func (b byPort) check() error {
	if b.Port < 1 || b.Port > 65535 {
		return invalid(fmt.Sprintf("port is %d, want 1 to 65535", b.Port), "")
	}
	return nil
}

type portAt struct {
	URL    string `json:"url"`
	Header string `json:"header,omitempty" jsonschema:"header that requests must have"`
	Note   string `json:"note,omitempty"`
}

// policyOf is a network policy in an answer. Secrets in it are not shown.
type policyOf struct {
	SandboxID string   `json:"sandbox_id"`
	Policy    string   `json:"policy" jsonschema:"none, public, custom or tap"`
	Default   string   `json:"default" jsonschema:"deny or public: for destinations that no rule names"`
	Allow     []string `json:"allow"`
	Deny      []string `json:"deny"`
	Cut       []string `json:"cut,omitempty" jsonschema:"what the operator does not allow"`
	Warning   string   `json:"warning,omitempty"`
}

type setPolicy struct {
	bySandbox
	networkOf
}

// addNetworkTools adds the tools for traffic from and to sandboxes.
func addNetworkTools(r *registry) {
	add(r, tool{name: "port_url", title: "URL of a port", about: "Get the URL of an HTTP server in a sandbox, as the " +
		"daemon serves it. It opens no port.", effect: reads}, portURL)
	add(r, tool{name: "expose_port", title: "Expose a port", about: "Open a port on the host of this MCP server that " +
		"leads to a TCP server in a sandbox, and return its address. It is " +
		"open on 127.0.0.1 for all users of that host until " +
		"the session ends.", effect: adds}, exposePort)
	add(r, tool{name: "get_network_policy", title: "Get the network policy", about: "Get what a sandbox may reach.",
		effect: reads},
		func(ctx context.Context, c call, in bySandbox) (policyOf, error) {
			n, err := c.client.Network(ctx, in.SandboxID)
			return policy(in.SandboxID, n), err
		})
	add(r, tool{name: "set_network_policy", title: "Set the network policy", about: "Change what a running sandbox may " +
		"reach. The arguments replace the default and all rules; header rules and limits stay. Connections that are no " +
		"longer allowed end. Private addresses and the daemon's host can never be allowed.", effect: changes}, setNetwork)
}

func policy(id string, n api.SandboxNetwork) policyOf {
	out := policyOf{SandboxID: id, Policy: string(n.Policy), Default: n.Effective.Default, Allow: n.Effective.Allow,
		Deny: n.Effective.Deny, Cut: n.Cut, Warning: n.Warning}
	if out.Default == "" {
		out.Default = "deny"
	}
	if out.Allow == nil {
		out.Allow = []string{}
	}
	if out.Deny == nil {
		out.Deny = []string{}
	}
	return out
}

func setNetwork(ctx context.Context, c call, in setPolicy) (policyOf, error) {
	wanted, err := in.policy()
	if err != nil {
		return policyOf{}, err
	}
	if wanted == nil {
		return policyOf{}, invalid("no policy is given", "give network, allow or deny")
	}
	now, err := c.client.Network(ctx, in.SandboxID)
	if err != nil {
		return policyOf{}, err
	}
	next := now.Network // keeps what has no argument here; secrets in it read ***, which keeps them
	next.Default, next.Allow, next.Deny = wanted.Default, wanted.Allow, wanted.Deny
	n, err := c.client.SetNetwork(ctx, in.SandboxID, api.SetNetworkRequest{Network: &next})
	return policy(in.SandboxID, n), err
}

func portURL(ctx context.Context, c call, in byPort) (portAt, error) {
	if err := in.check(); err != nil {
		return portAt{}, err
	}
	sb, err := c.client.Sandbox(ctx, in.SandboxID)
	if err != nil {
		return portAt{}, err
	}
	v, err := c.client.Version(ctx)
	if err != nil {
		return portAt{}, err
	}
	u := client.PortURL(c.client.URL(), v, sb)
	if u == "" {
		return portAt{}, &client.Error{Code: api.CodeUnsupported, Message: "the daemon serves no URLs for ports at the " +
			"address this server uses; expose_port opens a port here instead"}
	}
	out := portAt{URL: strings.Replace(u, "{port}", strconv.Itoa(in.Port), 1)}
	if sb.PrivatePorts {
		out.Header = "Forkd-Access-Token: " + sb.TrafficToken
	}
	return out, nil
}

func exposePort(ctx context.Context, c call, in byPort) (portAt, error) {
	if err := in.check(); err != nil {
		return portAt{}, err
	}
	if _, err := c.client.Sandbox(ctx, in.SandboxID); err != nil {
		return portAt{}, err
	}
	address, err := c.ports.open(c.session, c.client, in.SandboxID, uint16(in.Port))
	if err != nil {
		return portAt{}, err
	}
	return portAt{URL: "http://" + address, Note: "the address is for any TCP protocol; http is a guess. " +
		"It answers when a server listens in the sandbox."}, nil
}
