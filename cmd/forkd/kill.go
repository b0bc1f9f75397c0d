package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/hints"
)

func newKillCommand(a *app) *cobra.Command {
	var all, tree bool
	cmd := &cobra.Command{
		Use:     "kill ID...",
		Aliases: []string{"rm"},
		Short:   "End sandboxes",
		Long: "End sandboxes. The command tries all IDs. The exit code is 3 if one of them does not exist.\n\n" +
			"With --tree it ends all sandboxes of the same fork tree too. They cannot fork meanwhile.",
		Example:           "  forkd kill sb-5f3a-0001\n  forkd kill --tree sb-5f3a-0001\n  forkd kill --all",
		ValidArgsFunction: a.complete().ids(),
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return errors.New("name sandboxes, or give --all")
			}
			return nil
		},
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, ids []string) error {
			if all {
				var err error
				if ids, err = everyID(ctx, c); err != nil {
					return err
				}
			}
			if tree {
				return killTrees(ctx, a, c, ids)
			}
			return a.ended("killed", ids, killEach(ctx, c, ids, all))
		}),
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "end all sandboxes")
	cmd.Flags().BoolVar(&tree, "tree", false, "end all sandboxes of the same fork trees")
	cmd.MarkFlagsMutuallyExclusive("all", "tree")
	return cmd
}

// killTrees ends the trees of sandboxes, one after another, because two named sandboxes may be in
// one tree. It prints all sandboxes the daemon has ended.
func killTrees(ctx context.Context, a *app, c *client.Client, ids []string) error {
	killed, failed := []string{}, []error{}
	for _, id := range ids {
		dashless := func(s string) string { return strings.ReplaceAll(s, "-", "") }
		if slices.ContainsFunc(killed, func(k string) bool { return dashless(k) == dashless(id) }) {
			continue // ended with an earlier one
		}
		ended, err := client.EndTree(ctx, c, id)
		if err != nil {
			ended = []string{id}
		}
		for _, member := range ended {
			killed, failed = append(killed, member), append(failed, err)
		}
	}
	return a.ended("killed", killed, failed)
}

func everyID(ctx context.Context, c *client.Client) ([]string, error) {
	list, err := c.ListSandboxes(ctx)
	var ids []string
	for _, sb := range list {
		ids = append(ids, sb.ID)
	}
	return ids, err
}

// killEach ends sandboxes, several at a time. With all, a sandbox another client has ended
// meanwhile is no error.
func killEach(ctx context.Context, c *client.Client, ids []string, all bool, options ...client.KillOption) []error {
	const atOnce = 16
	errs := make([]error, len(ids))
	var wg sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for i, id := range ids {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			if err := c.Kill(ctx, id, options...); !all || !client.IsNotFound(err) {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return errs
}

// ended prints the names with a nil error, or with --json a list in that field. It reports all
// errors except the last, and returns the last.
func (a *app) ended(field string, names []string, errs []error) error {
	ended := []string{}
	var failed []error
	for i, name := range names {
		if errs[i] != nil {
			failed = append(failed, errs[i])
			continue
		}
		ended = append(ended, name)
	}
	if err := a.Names(field, ended); err != nil {
		return err
	}
	if len(failed) == 0 {
		return nil
	}
	last := failed[len(failed)-1]
	for _, err := range failed[:len(failed)-1] {
		a.report(nil, hintedBy(last, err))
	}
	return last
}

// hintedBy returns an error without its hint if the last error has the same hint.
func hintedBy(last, err error) error {
	if hints.Of(err) != hints.Of(last) {
		return err
	}
	return hints.With(err, "")
}
