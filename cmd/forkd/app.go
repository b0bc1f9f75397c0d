package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

// app holds the state all commands share: the global flags and values derived from them.
type app struct {
	ui.Printer
	flags endpoint.Flags
	began bool // a command's own work has begun
	line  commandLine
	named string // the machine named by a flag of a machine command

	config string // the operator's configuration; empty: configFile
}

func (a *app) addFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.BoolVar(&a.JSON, "json", false, "print results as JSON (docs/inside/formats/json-output.md)")
	f.Var(templateFlag{&a.Printer}, "format",
		"print results with a Go `TEMPLATE` over the fields of --json, such as '{{.id}}'; \"table ...\" aligns columns")
	cmd.MarkFlagsMutuallyExclusive("json", "format")
	f.BoolVarP(&a.Quiet, "quiet", "q", false, "print names only, without notes or progress")
	f.BoolVar(&a.NoColor, "no-color", false, "disable colours, like NO_COLOR")
	a.flags.Add(cmd)
}

// templateFlag is --format. Commands take the path of --json, and the printer uses the template.
type templateFlag struct{ p *ui.Printer }

func (t templateFlag) String() string {
	if t.p == nil { // for pflag, which compares defaults with the zero value
		return ""
	}
	return t.p.Format.String()
}

func (templateFlag) Type() string { return "template" }

// Set implements pflag.Value.
func (t templateFlag) Set(text string) error {
	if err := t.p.Format.Set(text); err != nil {
		return err
	}
	t.p.JSON = true
	return nil
}

// withoutJSON returns the commands without a result for --format. Their output is a program's, files
// or text for other programs.
func withoutJSON() []string {
	return []string{"exec", "run", "cp", "machine exec", "machine shell", "machine test-exec", "completion", "ssh",
		"ssh proxy", "ssh host-key", "mcp"}
}

// daemon finds or starts the daemon and returns a client for it.
func (a *app) daemon(ctx context.Context) (*client.Client, endpoint.Endpoint, error) {
	progress := func(line string) { a.Note("%s ...", line) }
	return a.connect(ctx, endpoint.Options{Start: true, Progress: progress,
		Notice: func(line string) { a.Note("forkd: %s", line) }})
}

// withClient runs work with a client of the daemon, wherever the daemon runs.
func (a *app) withClient(ctx context.Context, work func(context.Context, *client.Client) error) error {
	c, _, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return work(ctx, c)
}

// onDaemon returns the RunE for a command with no work outside the daemon.
func (a *app) onDaemon(
	work func(context.Context, *client.Client, []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error { return work(ctx, c, args) })
	}
}

func (a *app) connect(ctx context.Context, opt endpoint.Options) (*client.Client, endpoint.Endpoint, error) {
	c, e, err := a.flags.Connect(ctx, opt, "forkd-cli/"+version)
	var flag endpoint.FlagError
	if errors.As(err, &flag) {
		err = exit.UsageError{Err: err}
	}
	return c, e, err
}

// group returns a command for subcommands.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short}
	cmd.AddCommand(children...)
	return cmd
}
