package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/diskratio"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/sys/diskbench"
)

func newDiskCommand(a *app) *cobra.Command {
	cfg := diskratio.Config{}
	cmd := &cobra.Command{
		Use:   "disk [TAG]",
		Short: "Write and read a file in a sandbox, and the same in the file system that its disk lies in",
		Long: "Write a file and read it, one after another and at random places, with an fsync at the end of the writing: " +
			"in a child of TAG\n" +
			"(default: pyagent, made if need be), and by the daemon beside the sandboxes' disks, in turn. " +
			"The figures are medians.",
		Example:           "  forkd-bench disk --json",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTags,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Rounds < 1 || cfg.MiB < 1 || cfg.RandomOps < 1 {
				return exit.UsageError{Err: errors.New("--rounds, --mib and --ops are at least 1")}
			}
			b, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			if cfg.Tag, err = a.tag(cmd.Context(), args); err != nil {
				return err
			}
			cfg.Client, cfg.Floors, cfg.Say = b.client, b.floors, a.say
			f, err := diskratio.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			f.Where, f.CPUs = b.where, b.cpus
			if a.JSON {
				return a.Value(f)
			}
			return a.printDisk(f)
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.MiB, "mib", 64, "size of the file in MiB")
	f.IntVar(&cfg.RandomOps, "ops", 2000, "blocks of 4 KiB written, and read, at random places")
	f.IntVar(&cfg.Rounds, "rounds", 3, "how often")
	f.StringVar(&cfg.Dir, "dir", "/var/tmp", "folder in the sandbox")
	return cmd
}

func (a *app) printDisk(f diskratio.Figures) error {
	row := func(name, unit string, ratio float64, of func(diskbench.Figures) float64) []string {
		return []string{name, fmt.Sprintf("%.0f %s", of(f.Guest), unit), fmt.Sprintf("%.0f %s", of(f.Host), unit),
			fmt.Sprintf("%.2f", ratio)}
	}
	return a.Table([]string{"ACCESS", "SANDBOX", "BELOW", "RATIO"}, diskRows(row, f.Ratio))
}

// diskRows returns a row for each rate.
func diskRows(row func(name, unit string, ratio float64, of func(diskbench.Figures) float64) []string,
	r diskratio.Ratio) [][]string {
	return [][]string{
		row("sequential write", "MiB/s", r.SequentialWrite,
			func(d diskbench.Figures) float64 { return d.SequentialWriteMiBPerS }),
		row("sequential read", "MiB/s", r.SequentialRead,
			func(d diskbench.Figures) float64 { return d.SequentialReadMiBPerS }),
		row("random write", "/s", r.RandomWrite, func(d diskbench.Figures) float64 { return d.RandomWritesPerS }),
		row("random read", "/s", r.RandomRead, func(d diskbench.Figures) float64 { return d.RandomReadsPerS }),
	}
}
