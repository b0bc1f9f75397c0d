package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/compare"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
)

// comparison is the result of `forkd-bench compare --json` (docs/inside/formats/json-output.md).
type comparison struct {
	Bench   compare.Bench    `json:"bench"`
	A       string           `json:"a"` // the builds' directories
	B       string           `json:"b"`
	N       int              `json:"n,omitempty"` // children of a fork
	Rounds  int              `json:"rounds"`
	Figures []compare.Figure `json:"figures"`
	Where   string           `json:"where"`
	CPUs    int              `json:"cpus"`
}

func newCompareCommand(a *app) *cobra.Command {
	o := compareOptions{Config: compare.Config{Say: a.say}}
	cmd := &cobra.Command{
		Use:   "compare --a DIR --b DIR",
		Short: "Compare two builds of forkd, or two settings of one, in turn",
		Long: "Compare two builds of forkd, or two settings of one. Each is a side: a daemon of its own, with a store, an image and\n" +
			"a snapshot of its own, on this host or in the machine. The sides take turns, A B B A and so on, so that what else the\n" +
			"host does befalls both; the first lap of each does not count.\n\n" +
			"Printed are medians, and the ratio B to A: the geometric mean over the rounds' pairs, with its 95 % interval by\n" +
			"Student's t on the logarithms of the pairs' ratios. An interval that holds 1 shows no difference. Beside the times are CPU\n" +
			"time and page faults of daemon and VMMs, and VM exits and page faults of the guests (by KVM's counters, for root).\n\n" +
			"Everything that is made for it is removed. Sandboxes of other daemons are left alone; they are noise.\n\n" +
			exitCodes,
		Example: "  forkd-bench compare --a ../before/bin --b bin\n" +
			"  forkd-bench compare --bench branch --a ../before/bin --b bin --rounds 30 --json\n" +
			"  forkd-bench compare --a-pool 8 --b-pool 0\n" +
			"  forkd-bench compare --b-serve=--concurrency=1",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.compare(cmd.Context(), &o) },
	}
	o.addFlags(cmd)
	return cmd
}

func (o *compareOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	for _, side := range o.sides() {
		f.StringVar(&side.Dir, side.name, "", "directory with the programs of side "+side.name+" (default: this program's)")
		f.StringArrayVar(&side.Serve, side.name+"-serve", nil, "flag for `forkd serve` of side "+side.name+", as --FLAG=VALUE; may be given more than once")
		f.StringArrayVar(&side.Env, side.name+"-env", nil,
			"variable for its daemon and VMMs, NAME=VALUE; may be given more than once")
		f.IntVar(&side.Pool, side.name+"-pool", -1,
			"shells of side "+side.name+" to have ready before each fork (default: as many as children)")
		f.StringVar(&side.Image, side.name+"-image", "", "image as a tar file (default: made of --recipe by that build)")
	}
	f.StringVar((*string)(&o.Bench), "bench", string(compare.Fork),
		"what to measure: fork, branch, chain (forks from three deep in a chain), or disk (rates in one sandbox)")
	f.IntVarP(&o.N, "count", "n", 8, "children of each fork")
	f.IntVar(&o.Rounds, "rounds", 15, "pairs of laps, at least 2")
	f.IntVar(&o.MemoryMiB, "memory-mib", 0, "memory of the guests (default: the recipe's)")
	f.StringVar(&o.recipe, "recipe", recipe,
		"recipe of the image, which has its name; it needs a warm Python for --bench branch")
	f.StringVar(&o.Config.Dir, "work", "",
		"directory for the stores, with a short path (default: the user's state directory)")
	f.StringVar(&o.where, "where", string(endpoint.Host), "what to print as the place")
	_ = f.MarkHidden("where") // hidden, but accepted
}

// compareOptions are the command's flags.
type compareOptions struct {
	compare.Config
	recipe string
	where  string
}

// side is a Build with the prefix of its flags.
type side struct {
	*compare.Build
	name string
}

func (o *compareOptions) sides() []side { return []side{{&o.A, "a"}, {&o.B, "b"}} }

// complete fills in unset flags.
func (o *compareOptions) complete() error {
	if o.Rounds < 2 || o.N < 1 {
		return exit.UsageError{Err: errors.New("--rounds is at least 2, --count at least 1")}
	}
	if !slices.Contains(compare.Benches(), o.Bench) {
		return exit.UsageError{Err: fmt.Errorf("--bench %q: want fork, branch, chain or disk", o.Bench)}
	}
	o.Image = filepath.Base(o.recipe)
	for _, s := range o.sides() {
		if err := s.complete(o.N); err != nil {
			return exit.UsageError{Err: fmt.Errorf("--%s: %w", s.name, err)}
		}
	}
	return nil
}

func (a *app) compare(ctx context.Context, o *compareOptions) error {
	if a.flags.URL != "" {
		return exit.UsageError{Err: errors.New("compare starts daemons of its own: --url is not for it")}
	}
	if err := o.complete(); err != nil {
		return err
	}
	unlock, err := lock("compare")
	if err != nil {
		return err
	}
	defer unlock()
	remove, err := a.images(ctx, o)
	defer remove()
	if err != nil {
		return err
	}
	if a.flags.Place(ctx) == endpoint.Machine {
		return a.compareInMachine(ctx, o)
	}
	return a.compareHere(ctx, o)
}

// compareHere compares the builds on this host.
func (a *app) compareHere(ctx context.Context, o *compareOptions) error {
	if o.Config.Dir == "" {
		paths, err := endpoint.DefaultPaths()
		if err != nil {
			return err
		}
		o.Config.Dir = paths.State
	}
	dir, err := filepath.Abs(o.Config.Dir)
	if err != nil {
		return err
	}
	o.Config.Dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	figures, err := compare.Builds(ctx, o.Config)
	if err != nil {
		return err
	}
	c := comparison{Bench: o.Bench, A: o.A.Dir, B: o.B.Dir, Rounds: o.Rounds, Figures: figures, Where: o.where,
		CPUs: runtime.NumCPU()}
	if o.Bench.Forks() {
		c.N = o.N
	}
	if a.JSON {
		return a.Value(c)
	}
	return a.printComparison(c)
}

func (a *app) printComparison(c comparison) error {
	var rows [][]string
	for _, f := range c.Figures {
		interval := ""
		if f.Ratio > 0 {
			interval = fmt.Sprintf("%.3f to %.3f", f.Low, f.High)
		}
		rows = append(rows, []string{
			f.Name, fmt.Sprintf("%.5g", f.A), fmt.Sprintf("%.5g", f.B),
			known(f.Ratio, func(r float64) string { return fmt.Sprintf("%.3f", r) }),
			interval, fmt.Sprint(f.Pairs),
		})
	}
	if err := a.Table([]string{"FIGURE", "A", "B", "B/A", "95 %", "PAIRS"}, rows); err != nil {
		return err
	}
	a.Note("A: %s; B: %s; %s, %d CPUs", c.A, c.B, c.Where, c.CPUs)
	return nil
}
