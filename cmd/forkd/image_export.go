package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/imagebuild"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newImageExportCommand(a *app) *cobra.Command {
	e := imagebuild.Export{Format: imagebuild.FormatDocker}
	cmd := &cobra.Command{
		Use:   "export TAG FILE",
		Short: "Write a snapshot's root file system as a container image",
		Long: "Write the root file system of a snapshot, with the settings of its Dockerfile, as a container\n" +
			"image for `docker load`, `podman load`, `skopeo` and `forkd image import`. Memory, processes and\n" +
			"the content of volumes are not part of it: `forkd snapshot export` writes them. The snapshot's\n" +
			"root must have sh and tar.",
		Example: "  forkd image export app app.tar && docker load -i app.tar\n" +
			"  forkd image export --format oci app app.tar",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.complete().tags(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{imagebuild.FormatDocker, imagebuild.FormatOCI}, e.Format) {
				return exit.UsageError{Err: fmt.Errorf("--format is %q, want docker or oci", e.Format)}
			}
			e.Tag, e.File = args[0], args[1]
			if e.Reference == "" {
				e.Reference = e.Tag + ":latest"
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return exportImage(ctx, a, c, e)
			})
		},
	}
	cmd.Flags().StringVar(&e.Format, "format", e.Format, "write `FORMAT`: docker, as docker save, or oci, an OCI layout")
	cmd.Flags().StringVar(&e.Reference, "name", "", "name the image `REF` (default: TAG:latest)")
	return cmd
}

// exportedImage is the result of an export, as --json prints it.
type exportedImage struct {
	Tag   string `json:"tag"`
	Name  string `json:"name"`
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

func exportImage(ctx context.Context, a *app, c *client.Client, e imagebuild.Export) error {
	from, err := c.Snapshot(ctx, e.Tag)
	if err != nil {
		return err
	}
	meter := a.Meter("export "+e.Tag, func(done, _ int64) string { return ui.Bytes(done) })
	e.Client, e.Progress = c, func(n int) { meter.Add(int64(n)) }
	err = e.Write(ctx)
	meter.End()
	if err != nil {
		return err
	}
	st, err := os.Stat(e.File)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.Value(exportedImage{e.Tag, e.Reference, e.File, st.Size()})
	}
	if len(from.Volumes) > 0 {
		a.Note("the image lacks the content of these volumes: %s", containedVolumes(from.Volumes))
	}
	return a.Line("%s %s", e.File, e.Reference)
}
