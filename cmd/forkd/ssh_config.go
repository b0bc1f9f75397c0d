package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/forkd/internal/sshbridge"
	"github.com/forkd/forkd/cmd/internal/exit"
)

func newSSHConfigCommand(a *app) *cobra.Command {
	var install bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print ssh's configuration for sandboxes, or install it",
		Long: "Print a block of ssh_config(5) with which ssh, scp, sftp, rsync and editors reach every sandbox\n" +
			"as ID" + sshbridge.Suffix + ". With --install, write it to a file of its own and include it in " +
			"~/.ssh/config.\n\n" +
			"Flags that select the daemon, such as --url, become part of the block. A token does not: ssh must\n" +
			"find it in FORKD_TOKEN. ssh must be OpenSSH 8.5 or later.",
		Example: "  forkd ssh config --install\n  forkd --machine-name work ssh config",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.flags.Token != "" {
				return exit.UsageError{Err: errors.New("a token is not written to a configuration: set FORKD_TOKEN for ssh")}
			}
			p, err := sshProgram(cmd.Root().PersistentFlags())
			if err != nil {
				return err
			}
			if !install && a.JSON {
				return a.Value(printedSSH{p.Config()})
			}
			if !install {
				_, err := fmt.Fprint(a.Out, p.Config())
				return err
			}
			return installSSHConfig(a, p)
		},
	}
	cmd.Flags().BoolVar(&install, "install", false, "include the block in ~/.ssh/config")
	return cmd
}

// printedSSH is a configuration that is not installed, as --json prints it.
type printedSSH struct {
	Config string `json:"config"`
}

// installedSSH is the result of an installation, as --json prints it.
type installedSSH struct {
	File    string `json:"file"`     // with the block
	Include string `json:"included"` // the file that includes it
	Changed bool   `json:"changed"`  // whether Include changed
}

func installSSHConfig(a *app, p sshbridge.Program) error {
	secret, err := sshSecret()
	if err != nil {
		return err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	done := installedSSH{
		File: filepath.Join(filepath.Dir(secret), "ssh_config"), Include: filepath.Join(home, ".ssh", "config"),
	}
	if done.Changed, err = sshbridge.Install(done.Include, done.File, p.Config()); err != nil {
		return err
	}
	if a.JSON {
		return a.Value(done)
	}
	return a.Line("%s includes %s: connect with `ssh ID%s`", done.Include, done.File, sshbridge.Suffix)
}
