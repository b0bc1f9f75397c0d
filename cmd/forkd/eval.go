package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
)

func newEvalCommand(a *app) *cobra.Command {
	var language string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "eval ID [CODE|-]",
		Short: "Run code in a sandbox's warm interpreter",
		Long: "Run code in a sandbox's warm interpreter. The interpreter keeps its state between calls. The value\n" +
			"of the last expression is printed after the output of the code. If CODE is - or missing, it is\n" +
			"read from standard input.\n\n" +
			"The exit code is 1 after an exception, and n after exit(n).",
		Example:           "  forkd eval sb-5f3a-0001 'numpy.random.rand()'\n  forkd eval sb-5f3a-0001 < script.py",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.complete().ids(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("timeout") && timeout <= 0 {
				return exit.UsageError{Err: fmt.Errorf("--timeout is %s, want more than 0", timeout)}
			}
			code, err := codeFrom(cmd.InOrStdin(), args[1:])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				res, err := c.Eval(ctx, args[0], api.EvalRequest{Code: code, Language: language, TimeoutSecs: timeout.Seconds()})
				if err != nil {
					return err
				}
				return a.evaluated(res)
			})
		},
	}
	cmd.Flags().StringVarP(&language, "language", "l", "", "select the interpreter of `LANGUAGE` (default: python)")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "stop the code after `DURATION` (default: the daemon's limit)")
	return cmd
}

func codeFrom(stdin io.Reader, args []string) (string, error) {
	if len(args) == 1 && args[0] != "-" {
		return args[0], nil
	}
	b, err := io.ReadAll(io.LimitReader(stdin, api.MaxBodyBytes))
	if err == nil && len(b) == api.MaxBodyBytes {
		err = errors.New("larger than a request may be")
	}
	if err != nil {
		return "", fmt.Errorf("read code from standard input: %w", err)
	}
	return string(b), nil
}

// evaluated prints an answer, with each part on its stream.
func (a *app) evaluated(res api.EvalResponse) error {
	if a.JSON {
		if err := a.Value(res); err != nil {
			return err
		}
	} else {
		a.Out.Write(outputOf(res.Stdout, res.StdoutRaw))
		a.Err.Write(outputOf(res.Stderr, res.StderrRaw))
		if res.Result != nil {
			fmt.Fprintln(a.Out, *res.Result)
		}
		if res.Error != nil {
			fmt.Fprintln(a.Err, *res.Error)
		}
	}
	if res.Truncated {
		a.Note("forkd: the output is cut: its last %d bytes are missing (the first 4 MiB of each stream are kept)",
			res.DroppedBytes)
	}
	if res.ExitCode != 0 {
		return exit.Code(res.ExitCode)
	}
	return nil
}

// outputOf returns a stream exactly as the code wrote it.
func outputOf(text string, raw []byte) []byte {
	if len(raw) > 0 {
		return raw
	}
	return []byte(text)
}
