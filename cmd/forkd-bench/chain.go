package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/chainbench"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newChainCommand(a *app) *cobra.Command {
	cfg := chainbench.Config{CrowdDepth: 3}
	var plot string
	cmd := &cobra.Command{
		Use:   "chain [TAG]",
		Short: "Fork from snapshots that lie deep in a chain, beside forks from its first",
		Long: "Build a chain of snapshots on TAG (default: pyagent, made if need be), each of which writes memory and disk; fork from each depth,\n" +
			"alternating with forks from TAG itself; and fork many children of one depth, to see what they share. The chain " +
			"is deleted afterwards.",
		Example:           "  forkd-bench chain --json --plot chain.svg",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTags,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			if cfg.Tag, err = a.tag(cmd.Context(), args); err != nil {
				return err
			}
			cfg.Client, cfg.Say = b.client, a.say
			rows, err := chainbench.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			for i := range rows {
				rows[i].Where, rows[i].CPUs = b.where, b.cpus
			}
			if err := a.writePlot(plot, chainbench.Plot(rows), rows[0].Where, rows[0].CPUs); err != nil {
				return err
			}
			if a.JSON {
				return a.Value(rows)
			}
			return a.printChain(rows)
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&cfg.Depths, "depths", []int{1, 3, 5, 10}, "depths to fork from")
	f.IntVarP(&cfg.N, "count", "n", 8, "children of each fork")
	f.IntVar(&cfg.Rounds, "rounds", 9, "forks from each depth")
	f.IntVar(&cfg.StepMiB, "step", chainbench.DefaultStepMiB,
		"MiB of memory, and of disk, that each step of the chain writes")
	f.IntVar(&cfg.Crowd, "crowd", 20, "children of depth 3 whose memory is looked at; 0: none")
	f.BoolVar(&cfg.Keep, "keep", false, "leave the chain for the next run")
	f.StringVar(&plot, "plot", "", "write the figures as an SVG to this file")
	return cmd
}

func (a *app) printChain(rows []chainbench.Row) error {
	var table [][]string
	for _, r := range rows {
		memory := ""
		if r.Crowd > 0 {
			memory = fmt.Sprintf("%d KiB of %d children, %d KiB written, %d KiB shared",
				r.PSSKiBPerChild, r.Crowd, r.OwnKiBPerChild, r.SharedKiBPerChild)
		}
		table = append(table, []string{
			fmt.Sprint(r.Depth), ui.Millis(r.ReadyWallMS), fmt.Sprintf("%.2f", r.RatioToBase), ui.Millis(r.ArmedWallMS),
			ui.Bytes(r.LayerBytes), ui.Bytes(r.DirtyBytes), memory,
		})
	}
	return a.Table([]string{"DEPTH", "READY", "RATIO", "ARMED", "LAYER", "DIRTY", "PSS PER CHILD"}, table)
}
