package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/ui"
)

func newSnapshotVerifyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "verify TAG",
		Short:             "Read all of a snapshot and compare it with its digests",
		Long:              "Read all of a snapshot and compare it with its digests. Exit code 5 if it is damaged.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeTags(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			res, err := c.VerifySnapshot(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.verified(res)
		},
	}
}

func (a *app) verified(res api.VerifyResult) error {
	if a.JSON {
		if err := a.Value(res); err != nil {
			return err
		}
	} else {
		for _, d := range res.Damaged {
			if err := a.Line("%s: bytes %d to %d: %s", ui.Clean(d.File), d.Offset, d.Offset+d.Length, ui.Clean(d.Detail)); err != nil {
				return err
			}
		}
	}
	if !res.OK {
		return &client.Error{
			Code: api.CodeNotRestorable, Message: fmt.Sprintf("snapshot %s is damaged in %d places", res.Tag, len(res.Damaged)),
			Hint: "delete it and make it again with `forkd snapshot create`",
		}
	}
	a.Note("%s: %d files, %s read in %s, all as written", res.Tag, res.Files, ui.Bytes(res.Bytes), ui.Millis(res.TookMS))
	return nil
}
