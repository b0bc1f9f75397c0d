package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/floor"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/hints"
)

// exitCodes is the help text on exit codes.
const exitCodes = `Exit codes are those of forkd: 0 done, 1 failure, 2 wrong command line, 3 no such snapshot, 4 another
run is under way, 9 no memory or disk space, 10 no daemon, 130 interrupted. Nothing is left behind in any case.`

const exitUsage = 2

// report prints an error, as text or with --json as JSON, and returns the exit code.
func (a *app) report(cmd *cobra.Command, err error) int {
	var code exit.Code
	if errors.As(err, &code) {
		return int(code)
	}
	e, status := hints.Failure{
		Message: err.Error(), Code: client.CodeOf(err), Reason: client.ReasonOf(err), Hint: hintOf(cmd, err),
	}, 0
	var usage exit.UsageError
	var flag endpoint.FlagError
	switch {
	case errors.Is(err, context.Canceled):
		e.Message, e.Code, status = "interrupted", api.CodeInterrupted, exit.Interrupted
	case errors.As(err, &usage), errors.As(err, &flag):
		e.Code, status = api.CodeInvalid, exitUsage
	case errors.Is(err, endpoint.ErrNotRunning):
		e.Code = api.CodeUnreachable
	case errors.Is(err, floor.ErrNoHost):
		e.Code = api.CodeUnsupported
	}
	if status == 0 {
		status = e.Code.Exit()
	}
	exit.Tell(&a.Printer, e)
	return status
}

func hintOf(cmd *cobra.Command, err error) string {
	if hint := exit.Hint(cmd, err); hint != "" || !errors.Is(err, floor.ErrNoHost) {
		return hint
	}
	return "run forkd-bench on the daemon's host, with --url unix:///PATH of its socket"
}
