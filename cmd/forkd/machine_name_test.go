//go:build linux

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/hints"
)

// leaves returns the commands without subcommands.
func leaves(cmd *cobra.Command) (all []*cobra.Command) {
	for _, child := range cmd.Commands() {
		if child.HasSubCommands() {
			all = append(all, leaves(child)...)
		} else {
			all = append(all, child)
		}
	}
	return all
}

func TestEveryCommandTakesTheNameOfAMachine(t *testing.T) {
	root := newRoot(&app{})
	for _, cmd := range leaves(root) {
		if cmd.Flag("machine-name") == nil {
			t.Errorf("%s has no --machine-name", cmd.CommandPath())
		}
	}
}

func TestTheMachineOfAMachineCommand(t *testing.T) {
	for name, row := range map[string]struct{ flag, global, env, want string }{
		"none":            {want: "default"},
		"its own flag":    {flag: "a", env: "b", want: "a"},
		"the global flag": {global: "a", env: "b", want: "a"},
		"the variable":    {env: "b", want: "b"},
		"the same twice":  {flag: "a", global: "a", want: "a"},
		"two":             {flag: "a", global: "b"},
		"no name":         {flag: "A/B"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("FORKD_MACHINE", row.env)
			a := &app{}
			a.flags.MachineName = row.global
			m, err := (&machineName{app: a, flag: row.flag}).open()
			if row.want == "" {
				if !errors.As(err, &exit.UsageError{}) {
					t.Errorf("got %+v, %v", m, err)
				}
				return
			}
			if err != nil || m.Name != row.want || (hints.MachineFlag(m.Name) == "") != (row.want == "default") ||
				!strings.HasSuffix(hints.MachineFlag(m.Name), m.Name) && row.want != "default" {
				t.Errorf("got %+v, %v", m, err)
			}
		})
	}
}
