package main

import (
	"github.com/spf13/cobra"
)

func newImageRmCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "rm NAME...",
		Short:             "Remove images from the daemon's store; snapshots made of them stay",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeImages(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			for _, name := range args {
				if err := c.RemoveImage(cmd.Context(), name); err != nil {
					return err
				}
				if !a.JSON {
					if err := a.Line("%s", name); err != nil {
						return err
					}
				}
			}
			if a.JSON {
				return a.Value(map[string][]string{"removed": args})
			}
			return nil
		},
	}
}
