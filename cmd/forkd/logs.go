package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/ui"
)

func newLogsCommand(a *app) *cobra.Command {
	var raw, follow bool
	var tail int
	cmd := &cobra.Command{
		Use:               "logs ID",
		Short:             "Print a sandbox's console",
		Long:              "Print the last part of what the guest wrote to its serial console. What a terminal would take as\na command is left out, unless --raw is given.\nWith --follow go on with what comes, until the sandbox has ended.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if follow && a.JSON {
				return usageError{errors.New("--follow prints text, not JSON")}
			}
			c, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			if follow {
				return a.followConsole(cmd.Context(), c, args[0], tail, raw)
			}
			text, err := c.Console(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !raw {
				text = ui.CleanLines(text)
			}
			text = lastLines(text, tail)
			if a.JSON {
				return a.Value(map[string]string{"id": args[0], "console": text})
			}
			_, err = io.WriteString(a.Out, text)
			return err
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes")
	cmd.Flags().BoolVar(&raw, "raw", false, "print the bytes as they are")
	cmd.Flags().IntVarP(&tail, "tail", "n", 0, "print the last N lines only")
	return cmd
}

func (a *app) followConsole(ctx context.Context, c *client.Client, id string, tail int, raw bool) error {
	if tail <= 0 {
		tail = -1
	}
	if raw {
		return c.FollowConsole(ctx, id, tail, a.Out)
	}
	w := &ui.CleanWriter{W: a.Out}
	err := c.FollowConsole(ctx, id, tail, w)
	return errors.Join(err, w.Flush())
}

func lastLines(text string, n int) string {
	if n <= 0 {
		return text
	}
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "") + "\n"
}
