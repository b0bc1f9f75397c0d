package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newSnapshotVerifyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "verify TAG",
		Short:             "Read a snapshot in full and check its digests",
		Long:              "Read a snapshot in full and check its digests. The exit code is 5 if it is damaged.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().tags(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			meter := a.Meter("verify", portion)
			res, err := c.VerifySnapshot(ctx, args[0], meter.Set)
			meter.End()
			if err != nil {
				return err
			}
			return a.verified(res)
		}),
	}
}

func (a *app) verified(res api.VerifyResult) error {
	if a.JSON {
		if err := a.Value(res); err != nil {
			return err
		}
	} else {
		for _, d := range res.Damaged {
			if err := a.Line("%s", ui.Clean(damageLine(d))); err != nil {
				return err
			}
		}
	}
	if !res.OK {
		return &client.Error{
			Code: api.CodeNotRestorable, Message: fmt.Sprintf("snapshot %s is damaged in %s", res.Tag, places(len(res.Damaged))),
			Reason: api.ReasonVerifyFailed, Details: map[string]string{"tag": res.Tag},
		}
	}
	a.Note("%s: %d files, %s read in %s, all as written", res.Tag, res.Files, ui.Bytes(res.Bytes), ui.Millis(res.TookMS))
	return nil
}

// damageLine describes a damaged range. A file that is damaged as a whole, or has changed since its
// digests were made, has no range.
func damageLine(d api.Damage) string {
	if d.Length == 0 {
		return fmt.Sprintf("%s: %s", d.File, d.Detail)
	}
	return fmt.Sprintf("%s: bytes %d to %d: %s", d.File, d.Offset, d.Offset+d.Length, d.Detail)
}

func places(n int) string {
	if n == 1 {
		return "1 place"
	}
	return fmt.Sprintf("%d places", n)
}
