package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newNetCommand(a *app) *cobra.Command {
	return group("net", "Show and change sandboxes' network access, and make private networks",
		newNetPolicyCommand(a), newNetPsCommand(a), newNetLogCommand(a), newNetCreateCommand(a), newNetLsCommand(a),
		newNetInspectCommand(a), newNetRmCommand(a))
}

func newNetPolicyCommand(a *app) *cobra.Command {
	var n netFlags
	cmd := &cobra.Command{
		Use:   "policy ID",
		Short: "Show or change a sandbox's network policy",
		Long: "Show a sandbox's network policy, or change it while the sandbox runs. --net replaces the policy.\n" +
			"Without it, --allow and --deny add rules. Connections that the new policy denies are reset\n" +
			"immediately.",
		Example: "  forkd net policy sb-5f3a-0001\n  forkd net policy sb-5f3a-0001 --net none\n" +
			"  forkd net policy sb-5f3a-0001 --allow pypi.org:443 --allow '*.pythonhosted.org:443'",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().ids(),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := n.policy()
			if n.net != "" && err != nil { // before the daemon is called
				return err
			}
			if p != nil && p.Tap != "" {
				return exit.UsageError{Err: errors.New("a sandbox gets a tap when it is forked: `forkd fork TAG --net tap=NAME`")}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				now, err := c.Network(ctx, args[0])
				if err == nil && n.given() {
					now, err = n.change(ctx, c, args[0], now)
				}
				if err != nil {
					return err
				}
				return printNetwork(&a.Printer, now)
			})
		},
	}
	n.addFlags(cmd, "the current policy")
	return cmd
}

// change sends the policy of the flags, either complete or as a change of the current policy.
func (n *netFlags) change(ctx context.Context, c *client.Client, id string,
	now api.SandboxNetwork) (api.SandboxNetwork, error) {
	from := now.Network
	if n.net != "" {
		var err error
		if from, err = namedPolicy(n.net); err != nil {
			return now, err
		}
	}
	p, err := n.added(from)
	if err != nil {
		return now, err
	}
	return c.SetNetwork(ctx, id, api.SetNetworkRequest{Network: p})
}

func printNetwork(a *ui.Printer, n api.SandboxNetwork) error {
	if a.JSON {
		return a.Value(n)
	}
	if n.Tap != "" {
		return a.Facts("policy", string(n.Policy), "tap", n.Tap)
	}
	facts := []string{"policy", string(n.Policy), "default", n.Effective.Default}
	for _, list := range []struct {
		name  string
		rules []string
	}{{"allow", n.Effective.Allow}, {"deny", n.Effective.Deny}, {"cut", n.Cut}} {
		for _, r := range list.rules {
			facts = append(facts, list.name, r)
		}
	}
	for _, h := range n.Effective.Headers {
		for name := range h.Headers {
			facts = append(facts, "header", name+" for "+h.Host)
		}
	}
	for _, r := range n.Effective.Sign {
		for _, b := range r.Buckets {
			facts = append(facts, "bucket", bucketText(r.Host, b))
		}
	}
	if p := n.Effective.Proxy; p != nil {
		facts = append(facts, "proxy", ui.Clean(p.URL))
	}
	if n.Warning != "" {
		facts = append(facts, "warning", n.Warning)
	}
	return a.Facts(facts...)
}

func bucketText(host string, b api.BucketRule) string {
	text := host + "/" + b.Name + "/" + b.Prefix
	if b.ReadOnly {
		text += " (read-only)"
	}
	return ui.Clean(text)
}

func newNetPsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "ps ID",
		Short:             "List a sandbox's open connections",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().ids(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			flows, err := c.Flows(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(flows)
			}
			return a.Table([]string{"PROTO", "FAR", "NAME", "RULE", "SENT", "RECEIVED", "AGE"}, flowRows(flows, time.Now()))
		}),
	}
}

func flowRows(flows []api.NetworkFlow, now time.Time) [][]string {
	var rows [][]string
	for _, f := range flows {
		rule := f.Rule
		if rule == "" {
			rule = "default"
		}
		rows = append(rows, []string{f.Protocol, f.Far, f.Name, rule, ui.Bytes(f.Sent), ui.Bytes(f.Received),
			ui.Age(f.Began, now)})
	}
	return rows
}

// noteNetwork reports the parts of the requested policy the operator's ceiling removed. They are
// the same for all sandboxes of a fork.
func noteNetwork(p *ui.Printer, all []api.SandboxInfo) {
	if len(all) > 0 && all[0].Network != nil && len(all[0].Network.Cut) > 0 {
		p.Note("the daemon's ceiling cuts the network: %s", strings.Join(all[0].Network.Cut, "; "))
	}
}
