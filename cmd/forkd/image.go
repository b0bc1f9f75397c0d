package main

import (
	"github.com/spf13/cobra"
)

func newImageCommand(a *app) *cobra.Command {
	cmd := group("image", "Build, pull, list and remove images",
		newImageBuildCommand(a), newImagePullCommand(a), newImageImportCommand(a), newImageLsCommand(a),
		newImageExportCommand(a), newImageInspectCommand(a), newImageRmCommand(a))
	cmd.Aliases = []string{"images"}
	return cmd
}
