package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/hubbench"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newHubCommand(a *app) *cobra.Command {
	cfg := hubbench.Config{Image: recipe}
	cmd := &cobra.Command{
		Use:   "hub",
		Short: "Fork from a registry before the snapshot is here, beside a whole pull",
		Long: "Make a snapshot whose first evaluation reads --set MiB of its memory, and push it to a registry in this program, behind\n" +
			"a link with a rate and a delay. Then time `forkd fork --from` until the child's first evaluation has answered, and\n" +
			"`forkd pull` with a fork of the result, in turn. The figures are medians. Then push a chain of 5 snapshots link by\n" +
			"link, and count the bytes of the last one. The daemon reads the registry at the loopback address, so run this on\n" +
			"the host of the VMs. The snapshots are removed.",
		Example: "  forkd machine exec -- forkd-bench hub --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Rounds < 1 || cfg.HeldMiB < 1 || cfg.SetMiB < 0 || cfg.SetMiB > cfg.HeldMiB || cfg.RateMB < 0 ||
				cfg.Delay < 0 || cfg.ChangedMiB < 0 {
				return exit.UsageError{Err: errors.New("--rounds and --held are at least 1; --set, --rate, --delay and " +
					"--changed at least 0, and --set is at most --held")}
			}
			unlock, err := lock("hub")
			if err != nil {
				return err
			}
			defer unlock()
			b, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			cfg.Client, cfg.Say = b.client, a.say
			cfg.Forkd = func(ctx context.Context, cache string, args ...string) ([]byte, error) {
				return forkdOutput(ctx, a, cache, args)
			}
			f, err := hubbench.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			f.Where, f.CPUs = b.where, b.cpus
			if a.JSON {
				return a.Value(f)
			}
			return printHub(a, f)
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Rounds, "rounds", 1, "forks of each kind; later ones can find layers of the first")
	f.IntVar(&cfg.MemoryMiB, "memory", 1024, "memory of the guest in MiB")
	f.IntVar(&cfg.HeldMiB, "held", 768, "MiB of data in the guest's interpreter, half of them random")
	f.IntVar(&cfg.SetMiB, "set", 150, "MiB of these data that the first evaluation reads")
	f.IntVar(&cfg.ChangedMiB, "changed", 30, "MiB that each link of a chain of 5 snapshots changes; 0: no chain")
	f.Int64Var(&cfg.RateMB, "rate", 100, "rate of the link in MB/s; 0: no limit")
	f.DurationVar(&cfg.Delay, "delay", 20*time.Millisecond, "delay of an answer on the link")
	return cmd
}

// forkdOutput runs the forkd program next to this one, with the same daemon and its own cache.
func forkdOutput(ctx context.Context, a *app, cache string, args []string) ([]byte, error) {
	program, err := endpoint.Program("forkd")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, append(args, a.passed()...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // forkd reports any leftovers
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache)
	cmd.Stderr = a.Err
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("run forkd %s: %w", args[0], err)
	}
	return out, nil
}

func printHub(a *app, f hubbench.Figures) error {
	row := func(name string, w hubbench.Way) []string {
		return []string{name, ui.Millis(w.ReadyMS), ui.Millis(w.AnswerMS), fmt.Sprintf("%.0f", w.Requests),
			fmt.Sprintf("%.0f MiB", w.MiB)}
	}
	err := a.Table([]string{"WAY", "READY", "FIRST ANSWER", "REQUESTS", "FETCHED"},
		[][]string{row("fork --from", f.Lazy), row("pull, fork", f.Whole)})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "pull %s: link %s, zstd %s, SHA-256 %s on one CPU\n", ui.Millis(f.Whole.PullMS),
		ui.Millis(f.Bound.LinkMS), ui.Millis(f.Bound.ZstdMS), ui.Millis(f.Bound.SHA256MS))
	if c := f.Chain; c != nil && err == nil {
		_, err = fmt.Fprintf(a.Out, "push of link %d with %d MiB of changes: %.1f MiB\n", c.Links, c.ChangedMiB, c.MovedMiB)
	}
	return err
}
