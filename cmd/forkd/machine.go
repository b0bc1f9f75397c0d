//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/machine/appliance"
	"github.com/forkd/forkd/internal/machine/appliance/guest"
)

func newMachineCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "machine",
		Short: "Run the machine, for hosts without a usable KVM",
		Long: "The machine is a small Linux under QEMU that runs forkd. It is used if the KVM of this host is\n" +
			"missing or too slow. `forkd doctor` shows where VMs run.",
	}
	name := &machineName{app: a}
	cmd.PersistentFlags().StringVar(&name.flag, "name", "",
		"use the machine `NAME` (default: --machine-name, $FORKD_MACHINE, or "+appliance.DefaultName+")")
	cmd.AddCommand(newMachineStartCommand(name))
	cmd.AddCommand(newMachineStopCommand(name))
	cmd.AddCommand(newMachineStatusCommand(name))
	cmd.AddCommand(newMachineLogsCommand(name))
	cmd.AddCommand(newMachineRmCommand(name))
	cmd.AddCommand(newMachineShellCommand(name))
	cmd.AddCommand(newMachineExecCommand(name))
	cmd.AddCommand(newMachineTestExecCommand(name))
	return cmd
}

// machineName selects the machine of a machine command: by --name, or by the global flags and the
// environment.
type machineName struct {
	app  *app
	flag string
}

// open returns the selected machine. It creates nothing.
func (n *machineName) open() (*appliance.Appliance, error) {
	if global := n.app.flags.MachineName; n.flag != "" && global != "" && n.flag != global {
		return nil, exit.UsageError{Err: fmt.Errorf("--name %s and --machine-name %s are two machines", n.flag, global)}
	}
	if _, err := n.app.flags.Chosen(); n.flag == "" && err != nil {
		return nil, exit.UsageError{Err: err}
	}
	m, err := appliance.Open(cmp.Or(n.flag, n.app.flags.NameOfMachine()))
	if err != nil {
		return nil, exit.UsageError{Err: err}
	}
	if n.flag != "" {
		n.app.named = m.Name
	}
	return m, nil
}

// existing is open for commands that need a machine started before.
func (n *machineName) existing() (*appliance.Appliance, error) {
	m, err := n.open()
	if err == nil && !m.Exists() {
		return nil, endpoint.NoMachine(m.Name)
	}
	return m, err
}

// agent returns a client of the machine's agent. The machine must run.
func (n *machineName) agent() (*agentclient.Client, error) {
	m, err := n.existing()
	if err != nil {
		return nil, err
	}
	c, err := m.Agent()
	if errors.Is(err, appliance.ErrNotRunning) {
		return nil, hints.With(codedError{err, api.CodeUnreachable}, "`forkd machine start` starts it")
	}
	return c, err
}

// newMachineInitCommand returns the command the appliance's kernel starts.
func newMachineInitCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "machine-init",
		Short:  "Run as the first process of the machine",
		Hidden: true,
		Args:   cobra.NoArgs,
		Run:    func(*cobra.Command, []string) { guest.Run() },
	}
}
