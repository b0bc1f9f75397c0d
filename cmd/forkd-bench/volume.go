package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/volumebench"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/sys/diskbench"
)

func newVolumeCommand(a *app) *cobra.Command {
	cfg := volumebench.Config{}
	cmd := &cobra.Command{
		Use:   "volume [TAG]",
		Short: "Fork with a volume, beside forks without; clone a volume; and its throughput beside the root disk's",
		Long: "Fork single children of TAG (default: pyagent, made if need be) with a clone of a volume and without, in turn; clone the volume;\n" +
			"and write and read a file in the volume and on the root disk of one child. The figures are medians. " +
			"The volumes are removed.",
		Example:           "  forkd-bench volume --json",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTags,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Rounds < 1 || cfg.CloneGiB < 1 || cfg.FillMiB < 0 || cfg.MiB < 0 || cfg.RandomOps < 1 {
				return exit.UsageError{Err: errors.New("--rounds, --size and --ops are at least 1; --fill and --mib at least 0")}
			}
			unlock, err := lock("volume")
			if err != nil {
				return err
			}
			defer unlock()
			b, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			if cfg.Tag, err = a.tag(cmd.Context(), args); err != nil {
				return err
			}
			cfg.Client, cfg.Say = b.client, a.say
			f, err := volumebench.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			f.Where, f.CPUs = b.where, b.cpus
			if a.JSON {
				return a.Value(f)
			}
			return a.printVolume(f)
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Rounds, "rounds", 15, "forks of each kind, and clones")
	f.Int64Var(&cfg.CloneGiB, "size", 10, "size of the volume in GiB")
	f.IntVar(&cfg.FillMiB, "fill", 512, "MiB of random data in the volume")
	f.IntVar(&cfg.MiB, "mib", 64, "size in MiB of the file for the throughput; 0: do not measure it")
	f.IntVar(&cfg.RandomOps, "ops", 2000, "blocks of 4 KiB written, and read, at random places")
	return cmd
}

func (a *app) printVolume(f volumebench.Figures) error {
	rows := [][]string{
		{"fork, to the gate", ui.Millis(f.VolumeArm), ui.Millis(f.PlainArm), ""},
		{"fork, ready", ui.Millis(f.VolumeMS), ui.Millis(f.PlainMS), ratio(f.ForkRatio)},
		{fmt.Sprintf("clone of %d GiB", f.CloneGiB), ui.Millis(f.CloneMS), "", ""},
	}
	if f.Ratio != nil {
		row := func(name, unit string, ratio float64, of func(diskbench.Figures) float64) []string {
			return []string{name, fmt.Sprintf("%.0f %s", of(*f.Volume), unit), fmt.Sprintf("%.0f %s", of(*f.Root), unit),
				fmt.Sprintf("%.2f", ratio)}
		}
		rows = append(rows, diskRows(row, *f.Ratio)...)
	}
	return a.Table([]string{"WHAT", "VOLUME", "WITHOUT", "RATIO"}, rows)
}
