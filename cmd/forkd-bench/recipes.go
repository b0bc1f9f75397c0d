package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/recipebench"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newRecipesCommand(a *app) *cobra.Command {
	cfg := recipebench.Config{}
	var plot string
	cmd := &cobra.Command{
		Use:   "recipes [RECIPE...]",
		Short: "Fork recipes and time the first useful answer, beside the same work in a fresh process",
		Long: "Fork a child of each recipe and time its first useful answer; then do the same work in a fresh process of another\n" +
			"running child, in turn. The figures are medians. A recipe's snapshot has the recipe's name. Without arguments all\n" +
			"recipes with a snapshot are measured.",
		Example: "  forkd snapshot create --image nodejs --tag nodejs\n  forkd-bench recipes nodejs --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Rounds < 1 {
				return exit.UsageError{Err: errors.New("--rounds is at least 1")}
			}
			if err := checkRecipes(args); err != nil {
				return err
			}
			b, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			if cfg.Works, err = works(cmd.Context(), b, args); err != nil {
				return err
			}
			cfg.Client, cfg.Say = b.client, a.say
			rows, err := recipebench.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := a.writePlot(plot, recipebench.Plot(rows), b.where, b.cpus); err != nil {
				return err
			}
			if a.JSON {
				return a.Value(rows)
			}
			return a.printRecipes(rows)
		},
	}
	for _, w := range recipebench.Works {
		cmd.ValidArgs = append(cmd.ValidArgs, w.Recipe)
	}
	cmd.Flags().IntVar(&cfg.Rounds, "rounds", 5, "number of forks, and of fresh processes, of each recipe")
	cmd.Flags().StringVar(&plot, "plot", "", "write the figures as an SVG to this file")
	return cmd
}

// checkRecipes returns an error for a recipe without work to measure.
func checkRecipes(names []string) error {
	var known []string
	for _, w := range recipebench.Works {
		known = append(known, w.Recipe)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return exit.UsageError{Err: fmt.Errorf("no work is known for recipe %q, want one of %s",
				name, strings.Join(known, ", "))}
		}
	}
	return nil
}

// works returns the work of the named recipes, or of all recipes with a snapshot.
func works(ctx context.Context, b bench, names []string) (out []recipebench.Work, err error) {
	list, err := b.client.ListSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		for _, s := range list {
			names = append(names, s.Tag)
		}
	}
	for _, w := range recipebench.Works {
		if slices.Contains(names, w.Recipe) {
			out = append(out, w)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no recipe has a snapshot: make one with " +
			"`forkd image build nodejs` and `forkd snapshot create --image nodejs --tag nodejs`")
	}
	return out, nil
}

func (a *app) printRecipes(rows []recipebench.Row) error {
	var out [][]string
	for _, r := range rows {
		out = append(out, []string{r.Recipe, ui.Millis(r.ReadyMS), ui.Millis(r.AnswerMS), ui.Millis(r.AgainMS),
			ui.Millis(r.ColdMS), fmt.Sprintf("%.1f", r.Times)})
	}
	return a.Table([]string{"RECIPE", "READY", "FIRST ANSWER", "AGAIN", "COLD", "TIMES FASTER"}, out)
}
