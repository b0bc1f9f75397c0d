package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newForkCommand(a *app) *cobra.Command {
	var n int
	var env []string
	var secrets secretFlags
	var supervised serviceFlags
	var volumes volumeFlags
	var joined joinFlag
	var guestFork, identity, private bool
	var network netFlags
	var limits limitFlags
	var life lifeFlags
	var labelled *labelFlag
	var from fromFlags
	var group groupFlags
	cmd := &cobra.Command{
		Use:   "fork TAG",
		Short: "Fork sandboxes from a snapshot",
		Long: "Fork sandboxes from a snapshot. Failed children are listed with the reason. The exit code is 11 if\n" +
			"some children failed; if all failed, it is the code of the first failure.\n\n" +
			"With --from the snapshot comes from a registry. The forks begin when its state and a part of its\n" +
			"memory are here; the daemon fetches the rest meanwhile. Later forks use the same snapshot again.\n\n" +
			"With --group all running sandboxes of a private network are copied as they are at one instant.\n" +
			"Each of the N copies has a network of its own, with the same names. Connections between the\n" +
			"sandboxes continue.",
		Example: "  forkd fork pyagent\n  forkd fork pyagent -n 100 -e ROLE=worker\n" +
			"  forkd fork pyagent --allow pypi.org:443\n" +
			"  forkd fork --from registry.example.com/team/pyagent:v1\n" +
			"  forkd fork --group shop -n 2",
		Args:              group.args(from.args),
		ValidArgsFunction: a.complete().tags(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if group.network != "" {
				return group.fork(cmd.Context(), a, n)
			}
			vars, err := environment(env)
			if err != nil {
				return err
			}
			policy, err := network.policy()
			if err != nil {
				return err
			}
			refs, err := secrets.refs()
			if err != nil {
				return err
			}
			declared, err := supervised.services()
			if err != nil {
				return err
			}
			mounts, err := volumes.list()
			if err != nil {
				return err
			}
			join, err := joined.join()
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				tag, err := from.tag(ctx, a, c, args)
				if err != nil {
					return err
				}
				req := api.CreateSandboxesRequest{SnapshotTag: tag, N: &n, Env: vars, GuestFork: guestFork,
					Identity: identity, Network: policy, Secrets: refs, Services: declared, Volumes: mounts, NetJoin: join}
				if cmd.Flags().Changed("private-ports") { // otherwise the snapshot decides
					req.PrivatePorts = &private
				}
				limits.ask(&req)
				req.Labels = labelled.set
				req.SandboxLife = life.life()
				began := time.Now()
				shown := a.showChildren()
				res, err := c.ForkEach(ctx, req, shown.made)
				if err != nil {
					return unlessMade(ctx, unlessImage(ctx, c, tag, err), madeSandboxes(c, tag, began))
				}
				if err := shown.end(res); err != nil {
					return err
				}
				return supervised.await(ctx, c, res.OK())
			})
		},
	}
	f := cmd.Flags()
	f.IntVarP(&n, "count", "n", 1, "fork `N` children, 1 to 1000")
	f.BoolVar(&guestFork, "guest-fork", false,
		"allow programs in the children to fork them, with forkd-fork or Python's forkd.fork()")
	f.BoolVar(&identity, "identity", false,
		"allow programs in the children to get identity tokens, with forkd-token; needs a daemon with --identity-issuer")
	f.BoolVar(&private, "private-ports", false,
		"require a token on HTTP requests to the children's ports; forkd inspect shows it (default: the "+
			"snapshot's setting)")
	labelled = addLabelFlag(f, "the children")
	network.addFlags(cmd, "the snapshot's")
	joined.addFlag(f)
	limits.addFlags(cmd)
	limits.addTreeFlags(cmd)
	life.addFlags(cmd)
	f.StringArrayVarP(&env, "env", "e", nil,
		"set an environment variable for all programs of the children, `NAME=VALUE`; may be repeated")
	secrets.addFlags(f)
	supervised.addFlags(f)
	volumes.addFlags(f)
	from.addFlags(f)
	group.addFlags(cmd)
	return cmd
}

// fromFlags name a snapshot in a registry instead of a tag.
type fromFlags struct {
	ref   string
	plain bool
}

func (o *fromFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.ref, "from", "", "fork the snapshot `REF` of a registry, such as registry.example.com/team/pyagent:v1")
	f.BoolVar(&o.plain, "plain-http", false, "with --from: use a registry without TLS")
}

// args wants a tag or --from.
func (o *fromFlags) args(cmd *cobra.Command, args []string) error {
	if o.ref != "" {
		return cobra.NoArgs(cmd, args)
	}
	return cobra.ExactArgs(1)(cmd, args)
}

func (o *fromFlags) tag(ctx context.Context, a *app, c *client.Client, args []string) (string, error) {
	if o.ref == "" {
		return args[0], nil
	}
	return pulledFor(ctx, a, c, o.ref, o.plain)
}

// unlessImage adds advice to the error about a missing snapshot if an image has this name.
func unlessImage(ctx context.Context, c *client.Client, name string, err error) error {
	if !client.IsNotFound(err) {
		return err
	}
	images, _ := c.ListImages(ctx)
	if !slices.ContainsFunc(images, func(i api.Image) bool { return i.Name == name }) {
		return err
	}
	return hints.With(err, fmt.Sprintf("%s is an image: `forkd snapshot create --image %s --tag %s` makes a snapshot of it, "+
		"and `forkd run %s` runs a program in one", name, name, name, name))
}

// children shows the children of a fork while they are made, for early use of the first child. On a
// terminal it prints rows, with --quiet it prints names. Otherwise a table follows, in the
// children's order.
type children struct {
	app  *app
	rows *ui.Rows // nil: not for a terminal
}

func (a *app) showChildren() *children {
	c := &children{app: a}
	if !a.JSON && !a.Quiet && ui.Terminal(a.Out) {
		c.rows = a.Rows(childHeader, len("sb-00000000-0000"))
	}
	return c
}

// made receives each ready or failed child.
func (c *children) made(sb api.SandboxInfo) {
	switch {
	case c.rows != nil:
		_ = c.rows.Add(childRow(sb)) // lost output is reported at the end
	case c.app.Quiet && !c.app.JSON && sb.Error == "":
		fmt.Fprintln(c.app.Out, sb.ID)
	}
}

// end prints the children not shown yet, and their number.
func (c *children) end(res client.ForkResult) error {
	if c.app.JSON || !c.app.Quiet && c.rows == nil {
		if err := c.app.printForked(res); err != nil {
			return err
		}
	}
	return c.app.countForked(res)
}

// countForked prints the number of children. It returns an error if some failed.
func (a *app) countForked(res client.ForkResult) error {
	ok, failed := len(res.OK()), len(res.Failed())
	for _, sb := range res.OK()[:min(ok, 1)] { // it is the same for all
		if sb.Warning != "" {
			a.Note("warning: %s", sb.Warning)
		}
	}
	noteNetwork(&a.Printer, res.OK())
	a.Note("%d of %d forked in %s, %d from the pool", ok, ok+failed, ui.Duration(res.ReadyWall), min(res.PoolReady, ok))
	if failed > 0 {
		return &client.Error{Code: api.CodePartial,
			Message: fmt.Sprintf("%d of %d children could not be forked: %s", failed, ok+failed, res.Failed()[0].Error)}
	}
	return nil
}

func (a *app) printForked(res client.ForkResult) error {
	if a.JSON {
		return a.Value(res.Sandboxes)
	}
	var rows [][]string
	for _, sb := range res.Sandboxes {
		if sb.Error == "" || !a.Quiet {
			rows = append(rows, childRow(sb))
		}
	}
	return a.Table(childHeader, rows)
}

var childHeader = []string{"ID", "INDEX", "STATUS", "READY", "REASON"}

func childRow(sb api.SandboxInfo) []string {
	if sb.Error != "" {
		return []string{"", fmt.Sprint(sb.Index), string(sb.Status), "", sb.Error}
	}
	return []string{sb.ID, fmt.Sprint(sb.Index), string(sb.Status), readyIn(sb), ""}
}

func readyIn(sb api.SandboxInfo) string {
	if sb.Timings == nil {
		return ""
	}
	return ui.Millis(sb.Timings.ReadyMS)
}

// environment parses NAME=VALUE settings.
func environment(settings []string) (map[string]string, error) {
	vars := map[string]string{}
	for _, s := range settings {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, exit.UsageError{Err: fmt.Errorf("environment setting %q: want NAME=VALUE", s)}
		}
		vars[name] = value
	}
	return vars, nil
}
