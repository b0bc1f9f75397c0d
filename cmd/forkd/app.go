package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/endpoint"
	"github.com/forkd/forkd/cmd/forkd/internal/ui"
)

// app is what all commands share: the global flags and what follows from them.
type app struct {
	ui.Printer
	url, token    string
	host, machine bool
	began         bool // a command's own work has begun
}

func (a *app) addFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.BoolVar(&a.JSON, "json", false, "print results as JSON (docs/formats/json-output.md)")
	f.BoolVarP(&a.Quiet, "quiet", "q", false, "print bare names, and no notes or progress")
	f.BoolVar(&a.NoColor, "no-color", false, "print no colours, as with NO_COLOR")
	f.StringVar(&a.url, "url", "", "daemon to use: http://HOST:PORT or unix:///PATH (default: $FORKD_URL, else found or started)")
	f.StringVar(&a.token, "token", "", "token of that daemon (default: $FORKD_TOKEN)")
	f.BoolVar(&a.host, "host", false, "run VMs on this host, without deciding by measurement")
	f.BoolVar(&a.machine, "machine", false, "run VMs in the machine, without deciding by measurement")
	cmd.MarkFlagsMutuallyExclusive("host", "machine", "url")
}

// daemon finds or starts the daemon and returns a client for it.
func (a *app) daemon(ctx context.Context) (*client.Client, endpoint.Endpoint, error) {
	progress := func(line string) { a.Note("%s ...", line) }
	return a.connect(ctx, endpoint.Options{Start: true, Progress: progress, Notice: func(line string) { a.Note("forkd: %s", line) }})
}

// client is daemon for commands that do not care where it is.
func (a *app) client(ctx context.Context) (*client.Client, error) {
	c, _, err := a.daemon(ctx)
	return c, err
}

func (a *app) connect(ctx context.Context, opt endpoint.Options) (*client.Client, endpoint.Endpoint, error) {
	paths, err := endpoint.DefaultPaths()
	if err != nil {
		return nil, endpoint.Endpoint{}, err
	}
	opt.URL, opt.Token = a.url, a.token
	if opt.URL == "" {
		opt.URL = os.Getenv("FORKD_URL")
	}
	if opt.Token == "" {
		opt.Token = os.Getenv("FORKD_TOKEN")
	}
	switch {
	case a.host:
		opt.Force, opt.URL = endpoint.Host, ""
	case a.machine:
		opt.Force, opt.URL = endpoint.Machine, ""
	}
	e, err := endpoint.Resolve(ctx, paths, opt)
	if err != nil {
		return nil, e, err
	}
	c, err := client.New(client.Options{URL: e.URL, Token: e.Token, UserAgent: "forkd-cli/" + version})
	if err != nil {
		return nil, e, usageError{err}
	}
	return c, e, nil
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
