package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/forkd/internal/diskratio"
)

func newBenchDiskCommand(a *app) *cobra.Command {
	cfg := diskratio.Config{}
	cmd := &cobra.Command{
		Use:   "disk [TAG]",
		Short: "Write and read a file in a sandbox, and the same in the file system that its disk lies in",
		Long: "Write a file and read it, one after another and at random places, with an fsync at the end of the writing: in a child of TAG\n" +
			"(default: pyagent, made if need be), and by the daemon beside the sandboxes' disks, in turn. The figures are medians.",
		Example:           "  forkd bench disk --json",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTags(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Rounds < 1 || cfg.MiB < 1 || cfg.RandomOps < 1 {
				return usageError{errors.New("--rounds, --mib and --ops are at least 1")}
			}
			c, where, err := a.daemon(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			if cfg.Tag, err = a.benchTag(cmd.Context(), c, args); err != nil {
				return err
			}
			cfg.Client, cfg.Say = c, func(s string) { a.Note("%s", s) }
			f, err := diskratio.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			f.Where = string(where.Where)
			if a.JSON {
				return a.Value(f)
			}
			return a.printDiskBench(f)
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.MiB, "mib", 64, "size of the file in MiB")
	f.IntVar(&cfg.RandomOps, "ops", 2000, "blocks of 4 KiB written, and read, at random places")
	f.IntVar(&cfg.Rounds, "rounds", 3, "how often")
	f.StringVar(&cfg.Dir, "dir", "/var/tmp", "folder in the sandbox")
	return cmd
}

func (a *app) printDiskBench(f diskratio.Figures) error {
	row := func(name, unit string, ratio float64, of func(api.DiskFigures) float64) []string {
		return []string{name, fmt.Sprintf("%.0f %s", of(f.Guest), unit), fmt.Sprintf("%.0f %s", of(f.Host), unit), fmt.Sprintf("%.2f", ratio)}
	}
	return a.Table([]string{"ACCESS", "SANDBOX", "BELOW", "RATIO"}, [][]string{
		row("sequential write", "MiB/s", f.Ratio.SequentialWrite, func(d api.DiskFigures) float64 { return d.SequentialWriteMiBPerS }),
		row("sequential read", "MiB/s", f.Ratio.SequentialRead, func(d api.DiskFigures) float64 { return d.SequentialReadMiBPerS }),
		row("random write", "/s", f.Ratio.RandomWrite, func(d api.DiskFigures) float64 { return d.RandomWritesPerS }),
		row("random read", "/s", f.Ratio.RandomRead, func(d api.DiskFigures) float64 { return d.RandomReadsPerS }),
	})
}
