package main

import (
	"github.com/spf13/cobra"
)

func newSnapshotCommand(a *app) *cobra.Command {
	cmd := group("snapshot", "Make, list, compare, check, pin, publish, export and delete snapshots",
		newSnapshotCreateCommand(a), newSnapshotLsCommand(a), newSnapshotInfoCommand(a), newSnapshotTreeCommand(a),
		newSnapshotDiffCommand(a),
		newSnapshotVerifyCommand(a), newSnapshotCompactCommand(a), newSnapshotCopyCommand(a), newSnapshotPublishCommand(a),
		newSnapshotPinCommand(a), newSnapshotUnpinCommand(a), newSnapshotExpireCommand(a),
		newSnapshotExportCommand(a), newSnapshotImportCommand(a), newSnapshotRmCommand(a))
	cmd.Aliases = []string{"snapshots"}
	return cmd
}
