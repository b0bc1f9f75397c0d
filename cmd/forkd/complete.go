package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/endpoint"
)

// completer lists words for the shell. It starts no daemon. If it fails, it lists no words.
type completer struct {
	connect func(context.Context, endpoint.Options) (*client.Client, endpoint.Endpoint, error)
}

func (a *app) complete() completer { return completer{a.connect} }

func (c completer) words(list func(context.Context, *client.Client) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		silent := func(string) {}
		d, _, err := c.connect(ctx, endpoint.Options{Progress: silent, Notice: silent})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer d.Close()
		words, err := list(ctx, d)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

func (c completer) tags() cobra.CompletionFunc {
	return c.words(func(ctx context.Context, d *client.Client) ([]string, error) {
		list, err := d.ListSnapshots(ctx)
		var words []string
		for _, s := range list {
			words = append(words, s.Tag)
		}
		return words, err
	})
}

func (c completer) ids() cobra.CompletionFunc {
	return c.words(func(ctx context.Context, d *client.Client) ([]string, error) {
		list, err := d.ListSandboxes(ctx)
		var words []string
		for _, sb := range list {
			words = append(words, fmt.Sprintf("%s\tof %s", sb.ID, sb.SnapshotTag))
		}
		return words, err
	})
}

// idsAndTags completes the arguments of commands for either a sandbox or a snapshot.
func (c completer) idsAndTags() cobra.CompletionFunc {
	ids, tags := c.ids(), c.tags()
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		words, _ := ids(cmd, args, word)
		more, directive := tags(cmd, args, word)
		return append(words, more...), directive
	}
}

// idThenTag completes the arguments of commands with a sandbox and then a snapshot.
func (c completer) idThenTag() cobra.CompletionFunc {
	ids, tags := c.ids(), c.tags()
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return ids(cmd, args, word)
		}
		return tags(cmd, args, word)
	}
}

func (c completer) images() cobra.CompletionFunc {
	return c.words(func(ctx context.Context, d *client.Client) ([]string, error) {
		list, err := d.ListImages(ctx)
		var words []string
		for _, i := range list {
			words = append(words, i.Name)
		}
		return words, err
	})
}
