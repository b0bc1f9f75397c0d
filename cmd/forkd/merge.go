package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newMergeCommand(a *app) *cobra.Command {
	var req api.MergeRequest
	var ours, theirs, interactive bool
	cmd := &cobra.Command{
		Use:   "merge THEIRS OURS",
		Short: "Merge the changed files of a sandbox or a snapshot into a sandbox",
		Long: "Merge the changes of THEIRS, a sandbox or a snapshot, into the files of the running sandbox OURS.\n" +
			"Changes are relative to their common snapshot. Texts with changes on both sides are merged line by\n" +
			"line. Other files with changes on both sides are conflicts: the exit code is 4, and no file is\n" +
			"changed, unless --ours, --theirs or --interactive resolves them. Processes and memory are not\n" +
			"merged. A merge is not atomic: run `forkd branch OURS` first to be able to go back.",
		Example: "  forkd merge sb-5f3a-0002 sb-5f3a-0001 --dry-run\n  forkd merge sb-5f3a-0002 sb-5f3a-0001 --theirs\n" +
			"  forkd merge tried sb-5f3a-0001 --interactive",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.complete().idsAndTags(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if interactive && a.JSON {
				return exit.UsageError{Err: errors.New("--interactive and --json exclude each other")}
			}
			req.Theirs = args[0]
			switch {
			case ours:
				req.Resolve = api.MergeOurs
			case theirs:
				req.Resolve = api.MergeTheirs
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				m := merging{app: a, c: c, ours: args[1], req: req}
				if interactive {
					if err := m.ask(ctx, os.Stdin); err != nil {
						return err
					}
				}
				return m.run(ctx)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&req.DryRun, "dry-run", false, "show changes and conflicts, and change no file")
	f.BoolVar(&ours, "ours", false, "keep the version of OURS in each conflict")
	f.BoolVar(&theirs, "theirs", false, "take the version of THEIRS in each conflict")
	f.BoolVarP(&interactive, "interactive", "i", false, "ask for each conflict")
	f.StringVar(&req.Base, "base", "", "use `SNAPSHOT` as the common ancestor (default: the nearest)")
	cmd.MarkFlagsMutuallyExclusive("ours", "theirs", "interactive")
	return cmd
}

// merging is one run of the command.
type merging struct {
	app  *app
	c    *client.Client
	ours string
	req  api.MergeRequest
}

func (m *merging) run(ctx context.Context) error {
	res, err := m.call(ctx, m.req)
	if err != nil {
		return err
	}
	if m.app.JSON {
		err = m.app.Value(res)
	} else {
		err = m.print(res)
	}
	if err == nil && res.Unresolved > 0 {
		err = codedError{fmt.Errorf("%d of %d conflicts are left, and no file was changed",
			res.Unresolved, len(res.Conflicts)), api.CodeConflict}
	}
	return err
}

func (m *merging) call(ctx context.Context, req api.MergeRequest) (api.MergeResult, error) {
	busy := m.app.Busy("merge", "comparing "+req.Theirs+" and "+m.ours+" with the snapshot that they come from")
	defer busy.End()
	return client.Merge(ctx, m.c, m.ours, req)
}

// ask shows each conflict of a dry run and reads a line for it.
func (m *merging) ask(ctx context.Context, from io.Reader) error {
	dry := m.req
	dry.DryRun = true
	res, err := m.call(ctx, dry)
	if err != nil {
		return err
	}
	m.req.Paths = map[string]api.MergeSide{}
	in := bufio.NewScanner(from)
	for _, c := range res.Conflicts {
		side, err := m.choose(in, c)
		if err != nil {
			return err
		}
		if side != "" {
			m.req.Paths[c.Path] = side
		}
	}
	return nil
}

// choose reads until there is a valid answer. An empty side leaves the conflict.
func (m *merging) choose(in *bufio.Scanner, c api.MergeConflict) (api.MergeSide, error) {
	for {
		fmt.Fprintf(m.app.Err, "%s\n  [o]urs, [t]heirs, [s]kip or [q]uit? ", ui.Clean(c.Text))
		if !in.Scan() {
			return "", errors.New("no answer: no file was changed")
		}
		switch strings.ToLower(strings.TrimSpace(in.Text())) {
		case "o", "ours":
			return api.MergeOurs, nil
		case "t", "theirs":
			return api.MergeTheirs, nil
		case "s", "skip":
			return "", nil
		case "q", "quit":
			return "", errors.New("stopped: no file was changed")
		}
	}
}

func (m *merging) print(res api.MergeResult) error {
	marks := map[api.MergeAction]string{api.MergeAdded: "+", api.MergeModified: "~", api.MergeDeleted: "-",
		api.MergeMerged: "m"}
	for _, c := range res.Changes {
		if err := m.app.Line("%s %s", marks[c.Action], ui.Clean(c.Path)); err != nil {
			return err
		}
	}
	for _, c := range res.Conflicts {
		line := ui.Clean(c.Text)
		if c.Resolved != "" {
			line += " -> " + string(c.Resolved)
		}
		if err := m.app.Line("%s", line); err != nil {
			return err
		}
	}
	for _, s := range res.Skipped {
		m.app.Note("not merged: %s: %s", ui.Clean(s.Path), ui.Clean(s.Why))
	}
	if !res.Complete {
		m.app.Note("not all files could be looked at")
	}
	if res.Unresolved == 0 && len(res.Changes) == 0 {
		m.app.Note("%s has all changes of %s since %s already", m.ours, m.req.Theirs, res.Base)
	}
	return nil
}
