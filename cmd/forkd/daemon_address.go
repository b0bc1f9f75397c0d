//go:build linux

package main

import (
	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/endpoint"
)

// daemonAddress is the address of the daemon that commands use. Its JSON form is part of the CLI's
// contract: the SDKs read it.
type daemonAddress struct {
	URL string `json:"url"`
	// Token is sent to the daemon. It may be empty for a Unix socket.
	Token string `json:"token,omitempty"`
	Where string `json:"where"` // named, host or machine
}

func newDaemonAddressCommand(a *app) *cobra.Command {
	var noStart bool
	cmd := &cobra.Command{
		Use:   "address",
		Short: "Print the address of the daemon that commands use, and its token",
		Long: "Print the address of the daemon that commands use, and its token. The SDKs run this command to find\n" +
			"the daemon. Like other commands, it starts the daemon or the machine if none runs. The token gives\n" +
			"the operator's rights: keep the output to yourself.",
		Example: "  forkd daemon address --json\n  forkd daemon address --no-start",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			note := func(line string) { a.Note("forkd: %s", line) }
			c, e, err := a.connect(cmd.Context(), endpoint.Options{Start: !noStart, Progress: note, Notice: note})
			if err != nil {
				return err
			}
			c.Close()
			at := daemonAddress{URL: e.URL, Token: e.Token, Where: string(e.Where)}
			if a.JSON {
				return a.Value(at)
			}
			return a.Facts("url", at.URL, "token", at.Token, "where", at.Where)
		},
	}
	cmd.Flags().BoolVar(&noStart, "no-start", false, "fail if no daemon runs, instead of starting one")
	return cmd
}
