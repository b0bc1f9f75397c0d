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
		Short: "Test this daemon with E2B's clients",
		Long: "Make a sandbox, run a command in it and end it: with the installed E2B packages for Python and\n" +
			"Node, then with raw HTTP requests. The command fails if one of them fails.",
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
	cmd.Flags().StringVar(&opt.Template, "template", "base", "make the sandbox from `TEMPLATE`")
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
