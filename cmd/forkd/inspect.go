package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/receipts"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/leaf/labels"
)

func newInspectCommand(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "inspect ID|TAG",
		Short: "Show the receipt of a sandbox or a snapshot",
		Long: "Show the receipt of a sandbox (its fork or last rollback) or of a snapshot: its source, the\n" +
			"captured state, the guest's identity, the proof of new randomness, and the time of each step.\n" +
			"Receipts outlive the sandboxes and snapshots they describe.\n\n" +
			"For a running sandbox the command first shows its network policy, the version of\n" +
			"the agent in its guest, the URL of its servers with {port} for the server's port, and the token of\n" +
			"private ports.",
		Example:           "  forkd inspect sb-5f3a-0001\n  forkd inspect pyagent --json\n  forkd inspect sb-5f3a-0001 --all",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().idsAndTags(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			return a.inspect(ctx, c, args[0], all)
		}),
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "show all receipts, newest first")
	return cmd
}

// inspect prints the receipts of a sandbox or a snapshot, and its current state.
func (a *app) inspect(ctx context.Context, c *client.Client, name string, all bool) error {
	list, err := receiptsOf(ctx, c, name, all)
	switch {
	case err != nil:
		return err
	case a.JSON && all:
		return a.Value(list)
	}
	now, err := stateOf(ctx, c, name)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.Value(inspected{list[0], now})
	}
	if facts := now.facts(); len(facts) > 0 {
		if err := errors.Join(a.Facts(facts...), a.Line("")); err != nil {
			return err
		}
	}
	return a.printReceipts(list)
}

func (a *app) printReceipts(list []api.Receipt) error {
	for i, r := range list {
		if i > 0 {
			if err := a.Line(""); err != nil {
				return err
			}
		}
		if err := a.Facts(receipts.Facts(r)...); err != nil {
			return err
		}
	}
	return nil
}

// inspected is a receipt with the current state of its sandbox.
type inspected struct {
	api.Receipt
	sandboxState
}

// sandboxState is empty for a snapshot, and for a removed sandbox.
type sandboxState struct {
	Status  api.SandboxStatus   `json:"status,omitempty"`
	Reason  string              `json:"reason,omitempty"`
	Warning string              `json:"warning,omitempty"`
	LastOOM *api.SandboxOOM     `json:"last_oom,omitempty"`
	Network *api.NetworkSummary `json:"network,omitempty"`
	Agent   *api.GuestAgent     `json:"agent,omitempty"`
	// PausedIn and Life are as in the list.
	PausedIn string               `json:"paused_in,omitempty"`
	Life     *api.SandboxLifeInfo `json:"life,omitempty"`
	// Ports is the URL of its servers, with {port} for the port. It is absent if they cannot be
	// reached from here.
	Ports        string            `json:"ports,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	PrivatePorts bool              `json:"private_ports,omitempty"`
	TrafficToken string            `json:"traffic_token,omitempty"`

	id string
}

func stateOf(ctx context.Context, c *client.Client, id string) (sandboxState, error) {
	sb, err := c.Sandbox(ctx, id)
	var e *client.Error
	switch {
	case errors.As(err, &e) && (e.Code == api.CodeNotFound || e.Code == api.CodeInvalid):
		return sandboxState{}, nil
	case err != nil:
		return sandboxState{}, err
	}
	s := sandboxState{
		Status: sb.Status, Reason: sb.Reason, Warning: sb.Warning, LastOOM: sb.LastOOM, Network: sb.Network,
		Agent:    sb.Agent,
		PausedIn: sb.PausedIn, Life: sb.Life, Labels: sb.Labels,
		PrivatePorts: sb.PrivatePorts, TrafficToken: sb.TrafficToken, id: sb.ID,
	}
	if sb.Status == api.SandboxFailed {
		return s, nil
	}
	v, err := c.Version(ctx)
	s.Ports = client.PortURL(c.URL(), v, sb)
	return s, err
}

// facts returns the state as names and values for people.
func (s sandboxState) facts() (f []string) {
	if s.Status != "" && s.Status != api.SandboxRunning {
		f = append(f, "status", strings.TrimSuffix(string(s.Status)+": "+s.Reason, ": "))
	}
	if s.Warning != "" {
		f = append(f, "warning", s.Warning)
	}
	if o := s.LastOOM; o != nil {
		f = append(f, "last oom", fmt.Sprintf("the guest's kernel killed process %d, %s, at %s", o.PID, ui.Clean(o.Process),
			o.At.Format(time.RFC3339)))
	}
	if len(s.Labels) > 0 {
		f = append(f, "labels", ui.Clean(labels.Format(s.Labels)))
	}
	if s.Agent != nil {
		f = append(f, "agent", agentText(s.Agent, "a fork of its branch that needs a newer one replaces it",
			"fork a snapshot with a newer one"))
	}
	if s.Network == nil { // it has ended, or is not a sandbox
		return f
	}
	if s.Status == api.SandboxPaused { // for a running sandbox it is the snapshot below it
		f = append(f, "paused in", s.PausedIn)
	}
	return append(f, "life", lifeText(s.Life), "network", string(s.Network.Policy), "ports",
		cmp.Or(s.Ports, "forkd port-forward "+s.id+" PORT"), "traffic token", s.TrafficToken)
}

// lifeText describes a sandbox's automatic end or pause, and its automatic resume. It is empty for
// nil.
func lifeText(l *api.SandboxLifeInfo) string {
	if l == nil {
		return ""
	}
	var parts []string
	if l.DeadlineUnix != nil {
		parts = append(parts, fmt.Sprintf("%s at %s", atEnd(l), time.Unix(*l.DeadlineUnix, 0).UTC().Format(time.RFC3339)))
	}
	if l.IdleSecs > 0 {
		parts = append(parts, fmt.Sprintf("%s when unused for %g s, now for %.0f s", atEnd(l), l.IdleSecs, l.UnusedSecs))
	}
	if l.AutoResume {
		parts = append(parts, "continues automatically")
	}
	if l.RestartOnHang {
		parts = append(parts, "rolled back when its kernel hangs")
	}
	return strings.Join(parts, "; ")
}

// receiptsOf returns the newest receipt of a sandbox, or otherwise of a snapshot, or all of them.
func receiptsOf(ctx context.Context, c *client.Client, name string, all bool) ([]api.Receipt, error) {
	filter := client.ReceiptFilter{Sandbox: name, Limit: 1000}
	r, err := c.SandboxReceipt(ctx, name)
	if client.IsNotFound(err) {
		filter.Sandbox, filter.Snapshot = "", name
		r, err = c.SnapshotReceipt(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	if all {
		return c.ListReceipts(ctx, filter)
	}
	return []api.Receipt{r}, nil
}
