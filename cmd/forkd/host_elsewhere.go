//go:build !linux

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// hostCommands are the commands for Linux only. On this platform they refuse.
func hostCommands(*app) []*cobra.Command {
	return []*cobra.Command{
		{Use: "serve", Short: "Run the daemon (on Linux)"},
		{Use: "daemon", Short: "Show and stop the daemon of this host (on Linux)"},
		{Use: "doctor", Short: "Check this host, and print advice (on Linux)"},
		{Use: "machine", Short: "Run the machine, for hosts without a usable KVM (on Linux)"},
		{Use: "demo", Short: "Build, boot and fork an example (on Linux)"},
	}
}

func newImageBuildCommand(*app) *cobra.Command {
	return &cobra.Command{Use: "build", Short: "Build an image from a recipe (on Linux)"}
}

func newImagePullCommand(*app) *cobra.Command {
	return &cobra.Command{Use: "pull", Short: "Make an image from a container image in a registry (on Linux)"}
}

func newImageImportCommand(*app) *cobra.Command {
	return &cobra.Command{Use: "import", Short: "Make an image from a container image in a file (on Linux)"}
}

func newPushCommand(*app) *cobra.Command {
	return &cobra.Command{Use: "push", Short: "Send a snapshot to a registry (on Linux)"}
}

func newPullCommand(*app) *cobra.Command {
	return &cobra.Command{Use: "pull", Short: "Get a snapshot from a registry (on Linux)"}
}

func newHubCommand(*app) *cobra.Command {
	return &cobra.Command{Use: "hub", Short: "List and describe snapshots in registries (on Linux)"}
}

func newSecretKeyCommand(*app) *cobra.Command {
	return &cobra.Command{Use: "generate-key", Short: "Make the key that encrypts a daemon's secrets (on Linux)"}
}

func newSnapshotExportCommand(*app) *cobra.Command {
	return &cobra.Command{Use: "export", Short: "Write a snapshot to a file (on Linux)"}
}

func newSnapshotImportCommand(*app) *cobra.Command {
	return &cobra.Command{Use: "import", Short: "Make a snapshot from a file of snapshot export (on Linux)"}
}

// containers makes images from container images, on Linux only.
type containers struct{ app *app }

// ensureReference leaves the name of an image as it is. Container images can be pulled on Linux only.
func (containers) ensureReference(_ context.Context, _ *client.Client, name string) (string, error) {
	return name, nil
}

// ensureImage returns the daemon's image with this name. Recipes can be built on Linux only, with
// Debian's tools.
func (a *app) ensureImage(ctx context.Context, c *client.Client, name string) (api.Image, error) {
	return c.Image(ctx, name)
}
