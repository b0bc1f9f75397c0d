//go:build linux

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/internal/machine/appliance"
)

func newMachineStatusCommand(name *machineName) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show whether the machine runs, its settings and its address",
		Long: "Show whether the machine runs, how it was started and its address.\n\n" +
			"The exit code is 0 if the machine answers, otherwise 3.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := name.open()
			if err != nil {
				return err
			}
			st, err := m.Status(cmd.Context())
			if err != nil {
				return err
			}
			if name.app.JSON {
				err = name.app.Value(st)
			} else {
				err = printStatus(cmd.OutOrStdout(), st, hints.MachineFlag(m.Name))
			}
			if err == nil && st.State != appliance.StateRunning {
				return exit.Code(3)
			}
			return err
		},
	}
}

func printStatus(out io.Writer, st appliance.Status, nameFlag string) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	row := func(key, format string, args ...any) {
		fmt.Fprintf(w, "%s\t"+format+"\n", append([]any{key}, args...)...)
	}
	row("machine", "%s", st.Name)
	row("state", "%s", st.State)
	if st.StartedAt != nil {
		row("up since", "%s (%s)", st.StartedAt.Local().Format(time.DateTime), time.Since(*st.StartedAt).Round(time.Second))
		row("process", "%d", st.PID)
		row("engine", "QEMU %s, %s, kernel %s", st.QEMU, st.Accel, st.Kernel)
		row("api", "%s", st.API)
		row("agent", "%s", st.Agent)
	}
	if st.CPUs != 0 {
		row("size", "%d CPUs, %d MiB memory, %d GiB disk (%d MiB used)", st.CPUs, st.Memory, st.Disk, st.DiskUse)
	}
	if st.State != appliance.StateAbsent {
		row("directory", "%s", st.Dir)
	}
	if st.Outdated {
		row("note", "the programs have changed since the start; `forkd machine start%s --restart` updates it", nameFlag)
	}
	return w.Flush()
}
