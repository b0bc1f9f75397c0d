//go:build linux

package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/machine/appliance/testbench"
)

// newMachineTestExecCommand returns the command that `go test -exec` calls with a test binary.
func newMachineTestExecCommand(name *machineName) *cobra.Command {
	opt := testbench.Options{Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}
	cmd := &cobra.Command{
		Use:   "test-exec [flags] BINARY [ARG...]",
		Short: "Run a Go test binary in the machine, for go test -exec",
		Long: "Run a Go test binary in the machine, for `go test -exec`. The command starts the machine if\n" +
			"necessary, and leaves it running. It copies the package's testdata and the fixtures with the\n" +
			"binary.\n\n" +
			"The exit code is the binary's; 124 at the time limit; 125 if the machine fails.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := name.open()
			if err != nil {
				return err
			}
			if code := testbench.Run(cmd.Context(), m, opt, args[0], args[1:]); code != 0 {
				return exit.Code(code)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // later flags belong to the binary
	f.DurationVar(&opt.Timeout, "timeout", 5*time.Minute, "kill the test binary after `DURATION`")
	f.StringVar(&opt.Fixtures, "fixtures", os.Getenv("FORKD_TEST_FIXTURES"), "copy the tests' fixtures from `DIR`")
	return cmd
}
