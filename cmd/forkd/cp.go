package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newCpCommand(a *app) *cobra.Command {
	var opt client.CopyOptions
	cmd := &cobra.Command{
		Use:   "cp SOURCE TARGET",
		Short: "Copy files and directories to or from a sandbox",
		Long: "Copy files and directories to or from a sandbox. ID:PATH is a path in a sandbox; - is standard\n" +
			"input or output. Write ./ before a local path with a colon. If TARGET is a directory, SOURCE is\n" +
			"copied into it. Otherwise the parent directory of TARGET must exist.\n\n" +
			"In the sandbox, files are read and written with the permissions of the user. A SOURCE that is a\n" +
			"symbolic link is followed. Links inside a directory are copied as links, unless -L is given.\n" +
			"Sockets, FIFOs and devices are skipped. Times, permission bits, hard links and holes are\n" +
			"preserved.\n\n" +
			"A target file is replaced when its copy is complete. An interrupted copy reports the number of\n" +
			"complete files.",
		Example: "  forkd cp script.py sb-5f3a-0001:/tmp/\n  forkd cp sb-5f3a-0001:/root/results .\n" +
			"  forkd cp sb-5f3a-0001:/etc/hostname -",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.complete().ids(),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to := splitPlace(args[0]), splitPlace(args[1])
			if (from.id == "") == (to.id == "") {
				return exit.UsageError{Err: errors.New("one of SOURCE and TARGET must be ID:PATH")}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return a.copy(ctx, c, from, to, opt)
			})
		},
	}
	cmd.Flags().StringVarP(&opt.User, "user", "u", "", "access files as `USER` of the guest (default: the image's)")
	cmd.Flags().BoolVarP(&opt.FollowLinks, "dereference", "L", false, "follow symbolic links")
	return cmd
}

// place is one side of a copy. id is empty for this host.
type place struct{ id, path string }

func splitPlace(arg string) place {
	m := regexp.MustCompile(`^([A-Za-z0-9_-]{1,64}):(.*)$`).FindStringSubmatch(arg)
	if m == nil {
		return place{path: arg}
	}
	if m[2] == "" {
		m[2] = "."
	}
	return place{m[1], m[2]}
}

func (a *app) copy(ctx context.Context, c *client.Client, from, to place, opt client.CopyOptions) error {
	if from.id != "" && to.path == "-" {
		in, err := c.Download(ctx, from.id, from.path, opt.User)
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = io.Copy(a.Out, in)
		return err
	}
	var total, arrived atomic.Int64
	meter := a.Meter("copy", func(done, all int64) string {
		return portion(done, all) + fmt.Sprintf(", %d files and directories", arrived.Load())
	})
	defer meter.End()
	opt.Progress = func(n int) { total.Add(int64(n)); meter.Add(int64(n)) }
	opt.Total, opt.Arrived = meter.Total, func() { arrived.Add(1) }
	opt.Skipped = func(name, why string) { meter.Note("skipped %s: %s", ui.Clean(name), why) }
	opt.Lossy = func() {
		meter.Note("the agent in the sandbox is of an older forkd: times, hard links and holes are not kept")
	}
	var err error
	switch {
	case from.path == "-" && from.id == "":
		err = c.CopyStream(ctx, to.id, to.path, os.Stdin, opt)
	case to.id != "":
		err = c.CopyTo(ctx, to.id, from.path, to.path, opt)
	default:
		err = c.CopyFrom(ctx, from.id, from.path, to.path, opt)
	}
	meter.End()
	var partly *client.CopyError
	if errors.As(err, &partly) {
		return a.copiedPartly(partly)
	}
	if err == nil && from.path != "-" {
		a.Note("copied %s", ui.Bytes(total.Load()))
	}
	return copyInterrupted(err)
}

// portion describes a number of bytes as a part of all.
func portion(done, all int64) string {
	if all == 0 {
		return ui.Bytes(done)
	}
	return ui.Bytes(done) + " of " + ui.Bytes(all)
}

// copyInterrupted describes the result of an interrupted copy.
func copyInterrupted(err error) error {
	var stopped *client.StoppedError
	switch {
	case !errors.Is(err, context.Canceled):
		return err
	case !errors.As(err, &stopped):
		return interruption{"no file was copied"}
	case stopped.Unknown:
		return interruption{"the agent in the sandbox did not report the number of copied files: existing files are complete"}
	case stopped.Copied == 0:
		return interruption{"no file was copied"}
	}
	return interruption{fmt.Sprintf("%d files, links and directories were copied whole, the rest is as it was",
		stopped.Copied)}
}

// copiedPartly prints a line for each missing part, even with --quiet.
func (a *app) copiedPartly(e *client.CopyError) error {
	failed := len(e.Failed) + e.More
	message := fmt.Sprintf("%d of %d files, links and directories could not be copied", failed, failed+e.Copied)
	if a.JSON { // one line of JSON has all of it
		var all []string
		for _, err := range e.Failed {
			all = append(all, err.Error())
		}
		return &client.Error{Code: api.CodePartial, Message: message + ": " + strings.Join(all, "; ")}
	}
	for _, err := range e.Failed {
		a.Failure(err.Error(), "")
	}
	if e.More > 0 {
		a.Failure(fmt.Sprintf("and %d more", e.More), "")
	}
	return &client.Error{Code: api.CodePartial, Message: message}
}
