package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/forkbench"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newForkCommand(a *app) *cobra.Command {
	cfg := forkbench.Config{}
	var plot string
	cmd := &cobra.Command{
		Use:   "fork TAG",
		Short: "Fork children, ask each for a sign of life, end them; beside it, the floor",
		Long: "Fork children of a snapshot, ask each for a sign of life, and end them; alternating with the floor, which is the same\n" +
			"number of VMs of the same size made by nothing but the ioctls that the kernel demands, each run to its first exit.\n" +
			"The figures are medians over the rounds. In each round one child is forked alone, too. What the VMM of a child used\n" +
			"is by the kernel's account (`forkd-bench floor usage`), from the request until all were ready, or had answered.",
		Example:           "  forkd-bench fork pyagent -n 100 --json\n  forkd-bench fork pyagent -n 100 --pool 0",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeTags,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.N < 1 || cfg.Rounds < 1 {
				return exit.UsageError{Err: errors.New("--count and --rounds are at least 1")}
			}
			b, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			cfg.Client, cfg.Floors, cfg.Tag, cfg.Say = b.client, b.floors, args[0], a.say
			if !cmd.Flags().Changed("pool") {
				cfg.Pool = cfg.N
			}
			f, err := forkbench.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			f.Where, f.CPUs = b.where, b.cpus
			if err := a.writePlot(plot, forkbench.Plot(f), f.Where, f.CPUs); err != nil {
				return err
			}
			if a.JSON {
				return a.Value(f)
			}
			return a.printFork(f)
		},
	}
	cmd.Flags().IntVarP(&cfg.N, "count", "n", 100, "number of children, 1 to 1000")
	cmd.Flags().IntVar(&cfg.Pool, "pool", 0,
		"shells to have ready before each fork, -1 to leave the pool as it is (default: as many as children)")
	cmd.Flags().IntVar(&cfg.Rounds, "rounds", 3, "number of forks and floors")
	cmd.Flags().StringVar(&plot, "plot", "", "write the figures as an SVG to this file")
	return cmd
}

func (a *app) printFork(f forkbench.Figures) error {
	perChild := func(kib int64) string { return fmt.Sprintf("%d KiB per child", kib) }
	return a.Facts(
		"children", fmt.Sprintf("%d of %d, %d rounds", f.OK, f.N, f.Rounds),
		"armed, wall", ui.Millis(f.ArmedWallMS),
		"floor, wall", known(f.FloorWallMS, ui.Millis),
		"ratio", known(f.Ratio, ratio),
		"ready, wall", ui.Millis(f.ReadyWallMS),
		"ready, p50", ui.Millis(f.ReadyP50MS),
		"ready, p99", ui.Millis(f.ReadyP99MS),
		"first eval answered, p50", known(f.AnswerP50MS, ui.Millis),
		"first eval answered, p99", known(f.AnswerP99MS, ui.Millis),
		"one child, armed", ui.Millis(f.OneArmedMS),
		"one child, ready", ui.Millis(f.OneReadyMS),
		"one child, first eval answered", known(f.OneAnswerMS, ui.Millis),
		"eval, p50", ui.Millis(f.EvalP50MS),
		"eval, p50 beside the guest", ui.Millis(f.EvalDaemonP50MS),
		"VMM memory", perChild(f.VMMAnonKiB),
		"guest memory", perChild(f.GuestDirtyKiB),
		"PSS", perChild(f.PSSKiB),
		"host memory", known(float64(f.MemAvailableDeltaKiB), func(kib float64) string { return perChild(int64(kib)) }),
		"used until ready", used(f.ToReady),
		"used until answered", used(f.ToAnswer),
		"one child, used until ready", used(f.OneToReady),
		"one child, used until answered", used(f.OneToAnswer),
		"from the pool", fmt.Sprint(f.Pool),
		"where", place(f.Where, f.CPUs),
	)
}

// used describes the resource usage of a child's VMM. It returns an empty string if the usage was
// not read.
func used(u *forkbench.Use) string {
	if u == nil {
		return ""
	}
	s := fmt.Sprintf("%s of CPU time (%s in the kernel)", ui.Millis(u.UserMS+u.SystemMS), ui.Millis(u.SystemMS))
	if u.Counters != nil {
		s += fmt.Sprintf(", %.0f VM exits, %.0f guest page faults", u.Exits, u.GuestFaults)
	}
	return s
}
