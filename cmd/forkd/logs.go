package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newLogsCommand(a *app) *cobra.Command {
	var raw, follow bool
	var tail int
	var since, service string
	var opt client.ConsoleOptions
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Print a sandbox's console, and the output of its start command",
		Long: "Print the end of the guest's serial console, and of the output of its recipe's start command.\n" +
			"Terminal control sequences are removed, unless --raw is given. With --follow print the console\n" +
			"only, and follow it until the sandbox ends. With --service print the output of a service instead.\n\n" +
			"With --timestamps each line of the console has its time. Lines of the start command, and of VMs\n" +
			"of an older forkd, have a dash. --since omits the output of the start command.",
		Example: "  forkd logs sb-5f3a0012-0001 -f\n  forkd logs sb-5f3a0012-0001 -t --since 10m\n" +
			"  forkd logs sb-5f3a0012-0001 --service web -f",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().ids(),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case follow && a.JSON:
				return exit.UsageError{Err: errors.New("--follow prints text, not JSON")}
			case !cmd.Flags().Changed("tail"):
				tail = -1
			case tail < 0:
				return exit.UsageError{Err: fmt.Errorf("%s is %d, want 0 or more lines", a.line.asTyped(cmd, "tail"), tail)}
			}
			if service != "" {
				return printServiceLog(a, cmd, serviceLog{args[0], service, tail, follow, raw})
			}
			var err error
			if opt.Since, err = sinceTime(since, time.Now()); err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if follow {
					return a.followConsole(ctx, c, args[0], tail, raw, opt)
				}
				return a.printConsole(ctx, c, args[0], tail, raw, opt)
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow new output")
	cmd.Flags().StringVar(&service, "service", "", "print the output of service `NAME`")
	cmd.Flags().BoolVar(&raw, "raw", false, "print the bytes unchanged")
	cmd.Flags().BoolVarP(&opt.Times, "timestamps", "t", false, "print the time of each line, in UTC")
	cmd.Flags().StringVar(&since, "since", "", "print lines from this `time` on: RFC 3339, or an age such as 90m")
	cmd.Flags().IntVarP(&tail, "tail", "n", 0, "print the last `N` lines (default: all)")
	return cmd
}

// startLog is the guest's file with the output of its recipe's start command
// (docs/inside/formats/recipe.md).
const startLog = "/tmp/forkd-start.log"

// Limits for reading it. If a guest hangs, or writes without end, its console is still shown.
const (
	startLogTime = 5 * time.Second
	startLogMost = 64 << 20
	startLogTail = 1 << 20
)

// startOutput returns the last part of the output of a sandbox's start command. It is empty if
// there is no output or it cannot be read.
func startOutput(ctx context.Context, a *app, c *client.Client, id string) string {
	ctx, cancel := context.WithTimeout(ctx, startLogTime)
	defer cancel()
	file, err := c.Download(ctx, id, startLog, "root")
	if client.IsNotFound(err) || client.CodeOf(err) == api.CodeGuestGone {
		return "" // an ended sandbox has only its console
	}
	var kept []byte
	if err == nil {
		defer file.Close()
		kept, err = io.ReadAll(io.LimitReader(file, startLogMost))
	}
	if err != nil {
		a.Note("forkd: read the output of its start command: %v", err)
	}
	return string(kept[max(0, len(kept)-startLogTail):])
}

// startText returns startOutput with the options of a console. Its lines have no times.
func startText(ctx context.Context, a *app, c *client.Client, id string, opt client.ConsoleOptions) string {
	text := startOutput(ctx, a, c, id)
	switch {
	case text != "" && !opt.Since.IsZero():
		a.Note("forkd: the output of the start command has no times, and is left out with --since")
		return ""
	case text == "" || !opt.Times:
		return text
	}
	return "- " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n- ") + "\n"
}

// printConsole prints the last lines of a console and of the start command's output. A negative
// tail prints all lines.
func (a *app) printConsole(ctx context.Context, c *client.Client, id string, tail int, raw bool,
	opt client.ConsoleOptions) error {
	text, err := c.Console(ctx, id, opt)
	if err != nil {
		return err
	}
	if !raw {
		text = ui.CleanLines(text)
	}
	text = lastLines(text, tail)
	start := startText(ctx, a, c, id, opt)
	if !raw {
		start = ui.CleanLines(start)
	}
	start = lastLines(start, tail)
	switch {
	case a.JSON:
		return a.Value(map[string]string{"id": id, "console": text, "start": start})
	case start != "" && text != "":
		text = "==> console <==\n" + strings.TrimSuffix(text, "\n") + "\n\n==> start command <==\n"
	}
	_, err = io.WriteString(a.Out, text+start)
	return err
}

func (a *app) followConsole(ctx context.Context, c *client.Client, id string, tail int, raw bool,
	opt client.ConsoleOptions) error {
	if raw {
		return c.FollowConsole(ctx, id, tail, a.Out, opt)
	}
	w := &ui.CleanWriter{W: a.Out}
	err := c.FollowConsole(ctx, id, tail, w, opt)
	return errors.Join(err, w.Flush())
}

// lastLines returns the whole text if n is negative.
func lastLines(text string, n int) string {
	switch {
	case n < 0 || text == "":
		return text
	case n == 0:
		return ""
	}
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "") + "\n"
}

// serviceLog selects output of a service.
type serviceLog struct {
	id, name    string
	tail        int // lines; all if negative
	follow, raw bool
}

// printServiceLog prints a service's log, which has no times.
func printServiceLog(a *app, cmd *cobra.Command, l serviceLog) error {
	for _, name := range []string{"timestamps", "since"} {
		if cmd.Flags().Changed(name) {
			return exit.UsageError{Err: fmt.Errorf("--%s is for consoles: a service's log has no times", name)}
		}
	}
	return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
		services := client.ServicesOf(c, l.id)
		if a.JSON {
			var text strings.Builder
			if err := services.Log(ctx, l.name, l.tail, false, &text); err != nil {
				return err
			}
			return a.Value(map[string]string{"id": l.id, "service": l.name, "log": text.String()})
		}
		if l.raw {
			return services.Log(ctx, l.name, l.tail, l.follow, a.Out)
		}
		w := &ui.CleanWriter{W: a.Out}
		err := services.Log(ctx, l.name, l.tail, l.follow, w)
		return errors.Join(err, w.Flush())
	})
}
