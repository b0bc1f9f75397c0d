package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newLogsCommand(a *app) *cobra.Command {
	var raw, follow bool
	var tail int
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Print a sandbox's console",
		Long: "Print the last part of what the guest wrote to its serial console. What a terminal would take as\n" +
			"a command is left out, unless --raw is given.\n" +
			"With --follow go on with what comes, until the sandbox has ended.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().ids(),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case follow && a.JSON:
				return exit.UsageError{Err: errors.New("--follow prints text, not JSON")}
			case !cmd.Flags().Changed("tail"):
				tail = -1
			case tail < 0:
				return exit.UsageError{Err: fmt.Errorf("%s is %d, want 0 or more lines", a.line.asTyped(cmd, "tail"), tail)}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if follow {
					return a.followConsole(ctx, c, args[0], tail, raw)
				}
				return a.printConsole(ctx, c, args[0], tail, raw)
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes")
	cmd.Flags().BoolVar(&raw, "raw", false, "print the bytes as they are")
	cmd.Flags().IntVarP(&tail, "tail", "n", 0, "print the last N lines only (default: all)")
	return cmd
}

// printConsole prints the last lines of a console; a negative tail is all.
func (a *app) printConsole(ctx context.Context, c *client.Client, id string, tail int, raw bool) error {
	text, err := c.Console(ctx, id)
	if err != nil {
		return err
	}
	if !raw {
		text = ui.CleanLines(text)
	}
	text = lastLines(text, tail)
	if a.JSON {
		return a.Value(map[string]string{"id": id, "console": text})
	}
	_, err = io.WriteString(a.Out, text)
	return err
}

func (a *app) followConsole(ctx context.Context, c *client.Client, id string, tail int, raw bool) error {
	if raw {
		return c.FollowConsole(ctx, id, tail, a.Out)
	}
	w := &ui.CleanWriter{W: a.Out}
	err := c.FollowConsole(ctx, id, tail, w)
	return errors.Join(err, w.Flush())
}

// lastLines is all of a text for n < 0.
func lastLines(text string, n int) string {
	switch {
	case n < 0 || text == "":
		return text
	case n == 0:
		return ""
	}
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "") + "\n"
}
