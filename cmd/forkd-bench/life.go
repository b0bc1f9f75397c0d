package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/compare"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/lifebench"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

// lifeFigures is the result (docs/inside/formats/json-output.md).
type lifeFigures struct {
	lifebench.Cycle
	Idle  *lifebench.Idle `json:"idle,omitempty"`
	Where string          `json:"where"`
	CPUs  int             `json:"cpus,omitempty"`
}

func newLifeCommand(a *app) *cobra.Command {
	cfg := lifebench.Config{}
	idle := lifebench.IdleConfig{}
	cmd := &cobra.Command{
		Use:   "life [TAG]",
		Short: "Pause and resume a sandbox, beside a branch of it and a fork from that; what paused ones cost",
		Long: "For each round: fork a child of TAG (default: pyagent, made if need be), have it write, branch it in mode\n" +
			"diff twice, of which the second counts, have it write again, pause it; then fork one child of the branch and\n" +
			"resume the paused one, in turn.\n" +
			"Then start a daemon on this host twice, without and with --paused paused sandboxes, to see what they cost\n" +
			"it, and ask it with a key and without.",
		Example:           "  forkd-bench life --json\n  forkd-bench life pyagent --rounds 20 --dirty 64 --paused 0",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTags,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Rounds < 0 || cfg.Rounds == 1 || cfg.DirtyMiB < 1 || idle.Paused < 0 || idle.Requests < 1 {
				return exit.UsageError{Err: errors.New("--rounds is 0 or at least 2, --dirty and --requests at least 1, " +
					"--paused at least 0")}
			}
			f, err := a.measureCycle(cmd.Context(), cfg, args)
			if err != nil {
				return err
			}
			if idle.Paused > 0 {
				if f.Idle, err = a.measureIdle(cmd.Context(), idle); err != nil {
					return err
				}
			}
			if a.JSON {
				return a.Value(f)
			}
			return a.printLife(f)
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Rounds, "rounds", 10, "pauses that count, after one that does not; 0: none, and no daemon is asked")
	f.IntVar(&cfg.DirtyMiB, "dirty", 16, "MiB of memory that the child has written when it is branched, and paused")
	f.IntVar(&idle.Paused, "paused", 1000, "paused sandboxes of the daemon on this host; 0: there is none")
	f.IntVar(&idle.Requests, "requests", 2000, "requests to it with a key, and without")
	return cmd
}

// measureCycle pauses and resumes, with the daemon that it finds.
func (a *app) measureCycle(ctx context.Context, cfg lifebench.Config, args []string) (f lifeFigures, err error) {
	if cfg.Rounds == 0 {
		return f, nil
	}
	b, err := a.open(ctx)
	if err != nil {
		return f, err
	}
	defer b.Close()
	if cfg.Tag, err = a.tag(ctx, args); err != nil {
		return f, err
	}
	cfg.Client, cfg.Say = b.client, a.say
	f.Where, f.CPUs = b.where, b.cpus
	f.Cycle, err = lifebench.Run(ctx, cfg)
	return f, err
}

// measureIdle measures daemons of its own.
func (a *app) measureIdle(ctx context.Context, cfg lifebench.IdleConfig) (*lifebench.Idle, error) {
	program, err := endpoint.Program("forkd")
	if err != nil {
		return nil, err
	}
	cfg.Programs, cfg.Say = filepath.Dir(program), a.say
	f, err := lifebench.RunIdle(ctx, cfg)
	return &f, err
}

func (a *app) printLife(f lifeFigures) error {
	var facts []string
	if f.Rounds > 0 {
		facts = cycleFacts(f)
	}
	if i := f.Idle; i != nil {
		facts = append(facts,
			"a paused sandbox", fmt.Sprintf("%.0f bytes of the daemon's memory; %.0f descriptors for %d", i.HeapBytes,
				i.Descriptors, i.Paused),
			"daemon's start", fmt.Sprintf("%s with %d, %s with none", ui.Millis(i.StartMS), i.Paused, ui.Millis(i.StartNoneMS)),
			"list of all", ui.Millis(i.ListMS),
			"request with a key", fmt.Sprintf("%.0f us, %.0f us without, %.1f us more", i.KeyUS, i.PlainUS, i.KeyMoreUS))
	}
	return a.Facts(append(facts, "where", place(f.Where, f.CPUs))...)
}

func cycleFacts(f lifeFigures) []string {
	beside := func(of compare.Figure) string {
		return fmt.Sprintf("%.2f (%.2f to %.2f)", of.Ratio, of.Low, of.High)
	}
	return []string{
		"pauses", fmt.Sprintf("%d of children of %s that wrote %d MiB", f.Rounds, f.Tag, f.DirtyMiB),
		"pause, p50 p90", ui.Millis(f.Pause.B) + ", " + ui.Millis(f.PauseP90),
		"diff branch, p50", ui.Millis(f.Pause.A),
		"pause to branch", beside(f.Pause),
		"resume, p50 p90", ui.Millis(f.Resume.B) + ", " + ui.Millis(f.ResumeP90),
		"fork from that branch, p50", ui.Millis(f.Resume.A),
		"resume to fork", beside(f.Resume),
		"pause's steps", stepLine(f.PauseSteps),
		"branch's steps", stepLine(f.BranchSteps),
		"resume's steps", stepLine(f.ResumeSteps),
	}
}
