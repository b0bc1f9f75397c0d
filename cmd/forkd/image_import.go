//go:build linux

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/images/ociimage"
)

func newImageImportCommand(a *app) *cobra.Command {
	var f containerFlags
	var ref string
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Make an image from a container image in a file or a folder",
		Long: "Make an image from a container image in a file or a folder: an OCI layout, as a\n" +
			"folder or a tar, or a file of docker save. Tars may be compressed.",
		Example: "  forkd image import app.tar\n  forkd image import layout/ --ref 1.4 --name app",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.name == "" {
				f.name = ociimage.NameOfFile(args[0])
			}
			return containers{a}.makeAndPrint(cmd.Context(), f.local, func(ctx context.Context) (image.Image, error) {
				return containers{a}.makeImage(ctx, f, func(cache *ociimage.Cache) (*ociimage.Image, error) {
					return ociimage.OpenFile(ctx, args[0], ref, cache.Temp(), ociimage.Limits{})
				})
			})
		},
	}
	f.addFlags(cmd)
	cmd.Flags().StringVar(&ref, "ref", "", "import the image with the name or digest `NAME`, if the file has several")
	return cmd
}
