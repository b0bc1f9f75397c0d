//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/confine/landlock"
	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/machine/appliance"
	"github.com/forkd/forkd/internal/machine/hostcap"
)

// diagnosis is doctor's result. Its JSON form is part of the CLI's contract.
type diagnosis struct {
	// Ready reports whether VMs can run, on the host or in the machine.
	Ready    bool             `json:"ready"`
	Decision hostcap.Decision `json:"decision"`
	Checks   []hostcap.Check  `json:"checks"`
}

// exitNotReady is doctor's exit code when no place can run VMs.
const exitNotReady = 3

func newDoctorCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check this host, and print advice",
		Long: "Check the features of this host, and print advice about missing ones.\n\n" +
			"The exit code is 0 if VMs can run on the host or in the machine, otherwise 3.\n" +
			"`forkd support` writes the checks and the state of the daemon to a file for a bug report.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := diagnose(cmd, a.flags.NameOfMachine())
			if err != nil {
				return err
			}
			if a.JSON {
				err = a.Value(d)
			} else {
				err = printDiagnosis(cmd.OutOrStdout(), d)
			}
			if err == nil && !d.Ready {
				return exit.Code(exitNotReady)
			}
			return err
		},
	}
}

func diagnose(cmd *cobra.Command, machine string) (diagnosis, error) {
	m, err := appliance.Open(machine)
	if err != nil {
		return diagnosis{}, exit.UsageError{Err: err}
	}
	kvm := hostcap.Measure(cmd.Context())
	forMachine := appliance.Checks(cmd.Context())
	d := diagnosis{Decision: kvm.Decide()}
	d.Ready = d.Decision.Where == hostcap.Host || appliance.Ready(forMachine)
	d.Checks = append(d.Checks, kvm.Checks()...)
	d.Checks = append(d.Checks, hostcap.ProbeHost(m.Dir).Checks()...)
	d.Checks = append(d.Checks, netCheck(), netSandboxCheck())
	d.Checks = append(d.Checks, jailChecks(cmd.Context())...)
	d.Checks = append(d.Checks, selfCheck())
	d.Checks = append(d.Checks, forMachine...)
	return d, nil
}

// netCheck looks for the program for sandboxes' networks.
func netCheck() hostcap.Check {
	c := hostcap.Check{Name: "network", Level: hostcap.OK, Detail: "forkd-net is beside forkd"}
	if _, err := endpoint.Program("forkd-net"); err != nil {
		c.Level, c.Detail = hostcap.Note, "forkd-net is not beside forkd: sandboxes have no network"
		c.Do = "put it there (make build), and start the daemon again"
	} else if text := behindTranslation(dmiDir, ownAddrs()); text != "" {
		c.Level, c.Detail = hostcap.Note, text
		c.Do = "start the daemon with --net-own-address, or ignore this if it is, or if there is no public address"
	}
	return c
}

// netSandboxCheck reports the parts of forkd-net's own sandbox this host supports.
func netSandboxCheck() hostcap.Check {
	c := hostcap.Check{Name: "network: sandbox", Level: hostcap.OK}
	version, noFiles := landlock.Version()
	noCalls := seccomp.Available()
	if err := errors.Join(noFiles, noCalls); err != nil {
		c.Level, c.Detail = hostcap.Note, fmt.Sprintf("forkd-net goes without a part: %v", err)
		c.Do = "a kernel with Landlock (5.13, in the list lsm=) and seccomp"
		return c
	}
	c.Detail = fmt.Sprintf("no capabilities, landlock %d, a filter of system calls", version)
	return c
}

func printDiagnosis(out io.Writer, d diagnosis) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, c := range d.Checks {
		fmt.Fprintf(w, "%s\t%s\t%s\n", c.Level, c.Name, c.Detail)
		if c.Do != "" {
			fmt.Fprintf(w, "\t\t-> %s\n", c.Do)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	verdict := "VMs are run on this host"
	switch {
	case !d.Ready:
		verdict = "VMs cannot run yet: see the lines marked fail"
	case d.Decision.Where == hostcap.Machine:
		verdict = "VMs are run in the machine"
	}
	_, err := fmt.Fprintf(out, "\n%s: %s\n", verdict, d.Decision.Reason)
	return err
}
