package main

import (
	"github.com/spf13/cobra"
)

func newImageCommand(a *app) *cobra.Command {
	cmd := group("image", "Build, list and remove images",
		newImageBuildCommand(a), newImageLsCommand(a), newImageRmCommand(a))
	cmd.Aliases = []string{"images"}
	return cmd
}
