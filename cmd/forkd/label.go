package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/leaf/labels"
)

// newLabelCommand has the form of kubectl and not of `docker update`, which changes no labels: one
// request sets and removes labels together, and the words are the same for sandboxes and snapshots.
func newLabelCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "label ID|TAG [KEY=VALUE | KEY-]...",
		Short: "Show or change the labels of a sandbox or a snapshot",
		Long: "Set labels with KEY=VALUE, and remove labels with KEY-. Other labels stay. Without changes show the\n" +
			"labels. If a sandbox and a snapshot have the same name, the sandbox is meant.",
		Example: "  forkd label sb-5f3a-0001 job=7 team=agents\n  forkd label pyagent tested=yes draft-\n" +
			"  forkd ps --filter label=job=7",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.complete().idsAndTags(),
		RunE: func(cmd *cobra.Command, args []string) error {
			var req api.LabelsRequest
			if len(args) > 1 {
				change, err := labels.ParseChange(args[1:])
				if err != nil {
					return exit.UsageError{Err: err}
				}
				req.Set, req.Remove = change.Set, change.Remove
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				got, err := labelled(ctx, c, args[0], req, len(args) > 1)
				if err != nil {
					return err
				}
				return showLabels(a, got)
			})
		},
	}
}

// labelledObject is a sandbox or a snapshot with its labels.
type labelledObject struct {
	Sandbox  string            `json:"sandbox,omitempty"`
	Snapshot string            `json:"snapshot,omitempty"`
	Labels   map[string]string `json:"labels"` // never nil
}

// labelled changes the labels of a sandbox, or otherwise of a snapshot. Without change it reads them.
func labelled(ctx context.Context, c *client.Client, name string, req api.LabelsRequest,
	change bool) (labelledObject, error) {
	sb, err := c.Sandbox(ctx, name)
	if err == nil && change {
		sb, err = client.LabelSandbox(ctx, c, name, req)
	}
	if !client.IsNotFound(err) {
		return objectOf(sb.ID, "", sb.Labels), err
	}
	s, err := c.Snapshot(ctx, name)
	if err == nil && change {
		s.SnapshotInfo, err = client.LabelSnapshot(ctx, c, name, req)
	}
	if client.IsNotFound(err) {
		err = &client.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("no sandbox and no snapshot is named %q", name)}
	}
	return objectOf("", s.Tag, s.Labels), err
}

func objectOf(id, tag string, set map[string]string) labelledObject {
	if set == nil {
		set = map[string]string{}
	}
	return labelledObject{id, tag, set}
}

func showLabels(a *app, o labelledObject) error {
	if a.JSON {
		return a.Value(o)
	}
	var rows [][]string
	for _, k := range slices.Sorted(maps.Keys(o.Labels)) {
		rows = append(rows, []string{k, o.Labels[k]})
	}
	return a.Table([]string{"KEY", "VALUE"}, rows)
}

// labelFlag is --label of commands that make sandboxes or snapshots.
type labelFlag struct{ set map[string]string }

// addLabelFlag adds --label. of names the labelled objects.
func addLabelFlag(f *pflag.FlagSet, of string) *labelFlag {
	l := &labelFlag{}
	f.Var(l, "label", "label "+of+" with `KEY=VALUE`; may be repeated")
	return l
}

// String implements pflag.Value.
func (l *labelFlag) String() string { return labels.Format(l.set) }

// Type implements pflag.Value.
func (*labelFlag) Type() string { return "KEY=VALUE" }

// Set implements pflag.Value.
func (l *labelFlag) Set(text string) error {
	more, err := labels.Parse([]string{text})
	if err == nil {
		more = labels.Merge(l.set, more)
		err = labels.Check(more)
	}
	if err == nil {
		l.set = more
	}
	return err
}

// addFilterFlag adds --filter of lists. keys describes the known filters.
func addFilterFlag(f *pflag.FlagSet, to *[]string, keys string) {
	f.StringArrayVarP(to, "filter", "f", nil, "list only entries with `KEY=VALUE`; may be repeated. Keys: "+keys)
}
