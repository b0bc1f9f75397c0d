//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/machine/appliance"
)

func newMachineExecCommand(name *machineName) *cobra.Command {
	var uploads, env []string
	var dir string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "exec [flags] -- PROGRAM [ARG...]",
		Short: "Run a program in the machine itself, as root",
		Long: "Run a program as root in the machine itself, not in a sandbox, with this command's standard input.\n" +
			"The exit code is the program's. An interrupt of this command kills the program.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := name.agent()
			if err != nil {
				return err
			}
			defer client.Close()
			for _, u := range uploads {
				if err := uploadFile(cmd, client, u); err != nil {
					return err
				}
			}
			res, err := appliance.Run(cmd.Context(), client, appliance.Command{
				Args: args, Env: splitEnv(env), Dir: dir, Timeout: timeout,
				Stdin: inputOf(cmd), Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(),
			})
			if err != nil {
				return err
			}
			if res.TimedOut {
				fmt.Fprintf(cmd.ErrOrStderr(), "forkd: killed after %s\n", timeout)
			}
			if res.ExitCode != 0 {
				return exit.Code(res.ExitCode)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringArrayVarP(&uploads, "upload", "u", nil,
		"copy `FILE` into the machine first, to /tmp/up/NAME, or as FILE:TARGET; may be repeated")
	f.StringArrayVarP(&env, "env", "e", nil, "set an environment variable, `NAME=VALUE`; may be repeated")
	f.StringVarP(&dir, "dir", "C", "/tmp", "run the program in `DIR`")
	f.DurationVar(&timeout, "timeout", 0, "kill the program after `DURATION`")
	return cmd
}

// inputOf returns standard input, unless it is a terminal in use by another process. A read in the
// background would stop this process.
func inputOf(cmd *cobra.Command) io.Reader {
	in := cmd.InOrStdin()
	if f, ok := in.(*os.File); ok {
		group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
		if err == nil && group != unix.Getpgrp() {
			return nil
		}
	}
	return in
}

// uploadFile copies FILE or FILE:TARGET and keeps the executable bit.
func uploadFile(cmd *cobra.Command, client *agentclient.Client, spec string) error {
	from, to, ok := strings.Cut(spec, ":")
	if !ok {
		to = path.Join("/tmp/up", filepath.Base(from))
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := appliance.Upload(cmd.Context(), client, to, f, st.Size()); err != nil {
		return err
	}
	mode := fmt.Sprintf("%o", st.Mode().Perm())
	_, err = appliance.Run(cmd.Context(), client,
		appliance.Command{Args: []string{"/bin/chmod", mode, to}, Dir: "/", Stderr: cmd.ErrOrStderr()})
	return err
}

func splitEnv(list []string) map[string]string {
	env := make(map[string]string, len(list))
	for _, kv := range list {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	return env
}
