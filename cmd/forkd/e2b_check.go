package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/forkd/internal/e2bcheck"
)

func newE2BCheckCommand(a *app) *cobra.Command {
	opt := e2bcheck.Options{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Try this daemon as E2B's clients use it",
		Long: "Make a sandbox, run a command in it and end it, with E2B's package for Python and for Node, as a program finds them that\n" +
			"is run here, and over the wire without any. It fails if one of those that are installed does.",
		Example: "  forkd e2b check\n  forkd e2b check --template code-interpreter-v1 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			vars, err := askE2BVariables(cmd.Context(), a)
			if err != nil {
				return err
			}
			opt.Key, opt.API, opt.Sandbox = vars.Key, vars.API, vars.Sandbox
			return printChecks(a, e2bcheck.Run(cmd.Context(), opt))
		},
	}
	cmd.Flags().StringVar(&opt.Template, "template", "base", "template to make the sandbox of")
	return cmd
}

func printChecks(a *app, results []e2bcheck.Result) error {
	if a.JSON {
		if err := a.Value(results); err != nil {
			return err
		}
	}
	var failed []error
	for _, r := range results {
		word, detail := "ok", fmt.Sprintf("%s %.1f s", r.Version, r.TookMS/1000)
		switch {
		case !r.Installed:
			word, detail = "none", "e2b is not installed"
		case !r.OK:
			word, detail = "fail", r.Version+" "+r.Error
			failed = append(failed, fmt.Errorf("%s: %s", r.Client, r.Error))
		}
		if a.JSON {
			continue
		}
		if err := a.Line("%-6s %-7s %s", word, r.Client, detail); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}
