package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/ui"
)

// app is what all commands share: the global flags and what follows from them.
type app struct {
	ui.Printer
	flags endpoint.Flags
	began bool     // a command's own work has begun
	args  []string // the command line
}

func (a *app) addFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.BoolVar(&a.JSON, "json", false, "print results as JSON (docs/formats/json-output.md)")
	f.BoolVarP(&a.Quiet, "quiet", "q", false, "print bare names, and no notes or progress")
	f.BoolVar(&a.NoColor, "no-color", false, "print no colours, as with NO_COLOR")
	a.flags.Add(cmd)
}

// daemon finds or starts the daemon and returns a client for it.
func (a *app) daemon(ctx context.Context) (*client.Client, endpoint.Endpoint, error) {
	progress := func(line string) { a.Note("%s ...", line) }
	return a.connect(ctx, endpoint.Options{Start: true, Progress: progress,
		Notice: func(line string) { a.Note("forkd: %s", line) }})
}

// withClient does what needs the daemon, wherever that is.
func (a *app) withClient(ctx context.Context, work func(context.Context, *client.Client) error) error {
	c, _, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return work(ctx, c)
}

// onDaemon is the RunE of a command that does nothing else.
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
		err = usageError{err}
	}
	return c, e, err
}

// complete lists words for the shell. It starts nothing, and says nothing when
// that means that there are none.
func (a *app) complete(list func(context.Context, *client.Client) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		silent := func(string) {}
		c, _, err := a.connect(ctx, endpoint.Options{Progress: silent, Notice: silent})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.Close()
		words, err := list(ctx, c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) completeTags() cobra.CompletionFunc {
	return a.complete(func(ctx context.Context, c *client.Client) ([]string, error) {
		list, err := c.ListSnapshots(ctx)
		var words []string
		for _, s := range list {
			words = append(words, s.Tag)
		}
		return words, err
	})
}

func (a *app) completeIDs() cobra.CompletionFunc {
	return a.complete(func(ctx context.Context, c *client.Client) ([]string, error) {
		list, err := c.ListSandboxes(ctx)
		var words []string
		for _, sb := range list {
			words = append(words, fmt.Sprintf("%s\tof %s", sb.ID, sb.SnapshotTag))
		}
		return words, err
	})
}

// completeIDsAndTags is for commands that take either.
func (a *app) completeIDsAndTags() cobra.CompletionFunc {
	ids, tags := a.completeIDs(), a.completeTags()
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		words, _ := ids(cmd, args, word)
		more, directive := tags(cmd, args, word)
		return append(words, more...), directive
	}
}

// completeIDThenTag is for commands that take a sandbox and then a snapshot.
func (a *app) completeIDThenTag() cobra.CompletionFunc {
	ids, tags := a.completeIDs(), a.completeTags()
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return ids(cmd, args, word)
		}
		return tags(cmd, args, word)
	}
}

func (a *app) completeImages() cobra.CompletionFunc {
	return a.complete(func(ctx context.Context, c *client.Client) ([]string, error) {
		list, err := c.ListImages(ctx)
		var words []string
		for _, i := range list {
			words = append(words, i.Name)
		}
		return words, err
	})
}

// group is a command that only holds others.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short}
	cmd.AddCommand(children...)
	return cmd
}
