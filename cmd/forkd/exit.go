package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/internal/platform"
)

// Exit codes beside those of api.Codes. exec and run pass on the program's own
// code, so their own failures are where shells have such things.
const (
	exitUsage         = 2
	exitOwnFailure    = 125
	exitNotExecutable = 126
	exitNoProgram     = 127
	exitInterrupted   = 130
)

// exitCode is an error that carries the exit code of a program that ran.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// codedError is an error of this host that has a code of the table.
type codedError struct {
	error
	code api.Code
}

func (e codedError) Unwrap() error { return e.error }

// runsPrograms marks commands whose exit code is that of a program in a guest.
const runsPrograms = "forkd-runs-programs"

// codeOf is the exit code for an error of cmd.
func codeOf(cmd *cobra.Command, err error) int {
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	if cmd != nil && cmd.Annotations[runsPrograms] != "" {
		switch {
		case errors.Is(err, client.ErrNoProgram):
			return exitNoProgram
		case errors.Is(err, client.ErrNotExecutable):
			return exitNotExecutable
		}
		return exitOwnFailure
	}
	return kindOf(err).Exit()
}

// kindOf finds the code of an error, be it the daemon's or from here.
func kindOf(err error) api.Code {
	var usage usageError
	var own *client.Error
	var coded codedError
	switch {
	case errors.Is(err, context.Canceled):
		return api.CodeInterrupted
	case errors.As(err, &own):
		return own.Code
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &usage):
		return api.CodeInvalid
	case errors.Is(err, platform.ErrUnsupported):
		return api.CodeUnsupported
	case errors.Is(err, endpoint.ErrNotRunning):
		return api.CodeUnreachable
	}
	return api.CodeInternal
}

// report prints an error for people, or with --json for programs.
func (a *app) report(cmd *cobra.Command, err error) {
	var code exitCode
	if errors.As(err, &code) {
		return // whoever returned it said what there was to say
	}
	hint := hintOf(cmd, err)
	if !a.JSON {
		a.Failure(err.Error(), hint)
		return
	}
	enc := json.NewEncoder(a.Err)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(hints.Failure{Message: err.Error(), Code: kindOf(err), Reason: client.ReasonOf(err), Hint: hint})
}

func hintOf(cmd *cobra.Command, err error) string {
	var own *client.Error
	var usage usageError
	switch {
	case errors.As(err, &own):
		return hints.Of(err)
	case errors.As(err, &usage) && cmd != nil:
		return fmt.Sprintf("`%s --help` shows how it is used", cmd.CommandPath())
	case errors.Is(err, platform.ErrUnsupported):
		return "run it on Linux on x86-64; other commands reach a daemon there with --url or FORKD_URL"
	}
	return hints.Of(err)
}

// polish notes when a command's own work begins, for a failure before that is a
// mistake on the command line; and makes unknown commands errors.
func polish(a *app, cmd *cobra.Command) {
	if cmd.HasSubCommands() && cmd.RunE == nil && cmd.Run == nil {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = helpOrUnknown
	}
	if work := cmd.RunE; work != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if emptyArgument(cmd, args) {
				return errors.New("an argument is empty; a variable that is not set?")
			}
			a.began = true
			return work(cmd, args)
		}
	}
	for _, child := range cmd.Commands() {
		polish(a, child)
	}
}

// emptyArgument finds a name that is none. What follows the first argument of a
// command that runs something is that thing's own.
func emptyArgument(cmd *cobra.Command, args []string) bool {
	if len(args) > 1 && (cmd.Annotations[runsPrograms] != "" || cmd.Name() == "eval") {
		args = args[:1]
	}
	return slices.Contains(args, "")
}

// helpOrUnknown is what a command does that only holds others.
func helpOrUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if !cmd.HasParent() && args[0] == "bench" {
		text += "; benchmarks are run by `forkd-bench`"
	}
	for _, s := range alike(cmd, args[0]) {
		text += fmt.Sprintf("; did you mean %q?", s)
	}
	return usageError{errors.New(text)}
}
