package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/forkd/internal/sshbridge"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/hints"
)

func newSSHCommand(a *app) *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use:   "ssh [-u USER] ID [SSH-ARG...]",
		Short: "Open an SSH session to a sandbox",
		Long: "Run this host's ssh with a connection to a sandbox. All further arguments are ssh's: options, then a\n" +
			"command. The sandbox needs no SSH server and no network.\n\n" +
			"`forkd ssh config --install` makes sandboxes known to ssh, scp, sftp, rsync and editors as ID" +
			sshbridge.Suffix + ".",
		Example: "  forkd ssh sb-5f3a-0001\n  forkd ssh sb-5f3a-0001 ls -l\n" +
			"  forkd ssh sb-5f3a-0001 -N -L 8080:localhost:80\n" +
			"  forkd ssh config --install && scp file sb-5f3a-0001.forkd:",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.complete().ids(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runSSH(cmd.Context(), a, cmd.Root().PersistentFlags(), user, args)
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after the ID are ssh's
	cmd.Flags().StringVarP(&user, "user", "u", "", "log in as `USER` (default: the image's)")
	cmd.Annotations = map[string]string{runsPrograms: "yes"}
	cmd.AddCommand(newSSHConfigCommand(a), newSSHProxyCommand(a), newSSHHostKeyCommand())
	return cmd
}

func runSSH(ctx context.Context, a *app, flags *pflag.FlagSet, user string, args []string) error {
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		return hints.With(errors.New("this host has no ssh"),
			"install OpenSSH's client (Debian: openssh-client), or use `forkd exec -it ID bash`")
	}
	self, err := sshProgram(flags)
	if err != nil {
		return err
	}
	host, ok := sshbridge.Host(args[0])
	if !ok {
		return exit.UsageError{Err: fmt.Errorf("%q is not the ID of a sandbox", args[0])}
	}
	var line []string
	for _, o := range self.Options("%n") {
		line = append(line, "-o", o)
	}
	if user != "" {
		line = append([]string{"-l", user}, line...)
	}
	cmd := exec.CommandContext(ctx, ssh, append(append(line, host), args[1:]...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, a.Out, a.Err
	if a.flags.Token != "" {
		cmd.Env = append(os.Environ(), "FORKD_TOKEN="+a.flags.Token) // arguments are public
	}
	var ended *exec.ExitError
	if err := cmd.Run(); errors.As(err, &ended) && ended.ExitCode() > 0 {
		return exit.Code(ended.ExitCode())
	} else if err != nil {
		return fmt.Errorf("run %s: %w", ssh, err)
	}
	return nil
}

// sshProgram returns this program with the flags that select the daemon, without the token.
func sshProgram(flags *pflag.FlagSet) (sshbridge.Program, error) {
	self, err := os.Executable()
	if err != nil {
		return sshbridge.Program{}, fmt.Errorf("find own program: %w", err)
	}
	p := sshbridge.Program{Path: self}
	flags.Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "token", "json", "quiet", "no-color":
		default:
			p.Args = append(p.Args, "--"+f.Name+"="+f.Value.String())
		}
	})
	return p, nil
}

// sshSecret returns the file with the secret of host keys.
func sshSecret() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the folder of settings: %w", err)
	}
	return filepath.Join(dir, "forkd", "ssh-secret"), nil
}
