package main

import (
	"context"
	"errors"
	"io"
	"os"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/ui"
)

func newCpCommand(a *app) *cobra.Command {
	var opt client.CopyOptions
	cmd := &cobra.Command{
		Use:   "cp SOURCE TARGET",
		Short: "Copy files and directories to or from a sandbox",
		Long: "Copy files and directories to or from a sandbox. The side in the sandbox is ID:PATH. A target that is a directory\n" +
			"gets the source inside it. - stands for standard input or output. A local path with a colon needs ./ before it.",
		Example:           "  forkd cp script.py sb-5f3a-0001:/tmp/\n  forkd cp sb-5f3a-0001:/root/results .\n  forkd cp sb-5f3a-0001:/etc/hostname -",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeIDs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to := splitPlace(args[0]), splitPlace(args[1])
			if (from.id == "") == (to.id == "") {
				return usageError{errors.New("one of SOURCE and TARGET must be ID:PATH")}
			}
			c, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			return a.copy(cmd.Context(), c, from, to, opt)
		},
	}
	cmd.Flags().StringVarP(&opt.User, "user", "u", "", "user in the guest (default: the image's)")
	return cmd
}

// place is one side of a copy; id is empty for this host.
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
	switch {
	case to.id != "" && from.path == "-":
		return c.Upload(ctx, to.id, to.path, opt.User, os.Stdin)
	case from.id != "" && to.path == "-":
		in, err := c.Download(ctx, from.id, from.path, opt.User)
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = io.Copy(a.Out, in)
		return err
	}
	var total int64
	opt.Progress = func(n int) { total += int64(n) }
	var err error
	if to.id != "" {
		err = c.CopyTo(ctx, to.id, from.path, to.path, opt)
	} else {
		err = c.CopyFrom(ctx, from.id, from.path, to.path, opt)
	}
	if err == nil {
		a.Note("copied %s", ui.Bytes(total))
	}
	return err
}
