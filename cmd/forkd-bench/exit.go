package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/floor"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/hints"
)

// exitCodes is the part of the help on them.
const exitCodes = `Exit codes are those of forkd: 0 done, 1 failure, 2 wrong command line, 3 no such snapshot, 4 another
run is under way, 9 no memory or disk space, 10 no daemon, 130 interrupted. Nothing is left behind in any case.`

const (
	exitUsage       = 2
	exitInterrupted = 130
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exitCode is an error that carries the exit code of a program that told its own error.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// report prints an error, for people or with --json for programs, and returns the exit code.
func (a *app) report(cmd *cobra.Command, err error) int {
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	e, exit := hints.Failure{Message: err.Error(), Code: client.CodeOf(err), Reason: client.ReasonOf(err),
		Hint: hintOf(cmd, err)}, 0
	var usage usageError
	var flag endpoint.FlagError
	switch {
	case errors.Is(err, context.Canceled):
		e.Message, e.Code, exit = "interrupted", api.CodeInterrupted, exitInterrupted
	case errors.As(err, &usage), errors.As(err, &flag):
		e.Code, exit = api.CodeInvalid, exitUsage
	case errors.Is(err, endpoint.ErrNotRunning):
		e.Code = api.CodeUnreachable
	case errors.Is(err, floor.ErrNoHost):
		e.Code = api.CodeUnsupported
	}
	if exit == 0 {
		exit = e.Code.Exit()
	}
	if a.JSON {
		enc := json.NewEncoder(a.Err)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(e)
	} else {
		a.Failure(e.Message, e.Hint)
	}
	return exit
}

func hintOf(cmd *cobra.Command, err error) string {
	var own *client.Error
	var usage usageError
	switch {
	case errors.As(err, &own):
		return hints.Of(err)
	case errors.As(err, &usage) && cmd != nil:
		return fmt.Sprintf("`%s --help` shows how it is used", cmd.CommandPath())
	case errors.Is(err, floor.ErrNoHost):
		return "run forkd-bench on the daemon's host, with --url unix:///PATH of its socket"
	}
	return hints.Of(err)
}
