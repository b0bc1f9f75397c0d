package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/forkd/internal/ui"
)

func newLogsCommand(a *app) *cobra.Command {
	var raw bool
	var tail int
	cmd := &cobra.Command{
		Use:               "logs ID",
		Short:             "Print a sandbox's console",
		Long:              "Print the last part of what the guest wrote to its serial console. What a terminal would take as\na command is left out, unless --raw is given.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
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
	cmd.Flags().BoolVar(&raw, "raw", false, "print the bytes as they are")
	cmd.Flags().IntVarP(&tail, "tail", "n", 0, "print the last N lines only")
	return cmd
}

func lastLines(text string, n int) string {
	if n <= 0 {
		return text
	}
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "") + "\n"
}
