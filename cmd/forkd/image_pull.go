//go:build linux

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/registries"
	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/images/kernelpkg"
	"github.com/forkd/forkd/internal/images/ociimage"
)

// containers makes images from container images.
type containers struct{ app *app }

// containerFlags are the flags of commands that make an image from a container image.
type containerFlags struct {
	name    string
	local   bool
	start   bool
	modules []string
}

func (f *containerFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "name", "", "name the image `NAME` (default: from the reference or the file)")
	cmd.Flags().BoolVar(&f.local, "local", false, "make the image only, without sending it to a daemon")
	cmd.Flags().BoolVar(&f.start, "start", false,
		"start its program before a snapshot is made, and wait for its health check, or for its lowest exposed port")
	cmd.Flags().StringSliceVar(&f.modules, "modules", nil, "add the kernel modules `NAMES`, separated by commas, or a set: "+
		strings.Join(kernelpkg.Sets(), ", "))
}

func newImagePullCommand(a *app) *cobra.Command {
	var f containerFlags
	var plain bool
	cmd := &cobra.Command{
		Use:   "pull REF",
		Short: "Make an image from a container image in a registry",
		Long: "Make an image from a container image in a registry: HOST/REPOSITORY:TAG, or @DIGEST instead of the\n" +
			"tag. Its layers become the root; kernel and agent are forkd's. Credentials come from docker login,\n" +
			"podman login and their helpers. Layers stay in the cache, and an interrupted download continues.\n" +
			"~/.config/forkd/registries.yaml names mirrors, and registries without TLS; " + registries.Variable + "\n" +
			"lists hosts without TLS, too.",
		Example: "  forkd image pull registry.example.com/team/app:1.4\n" +
			"  forkd image pull python:3.12-slim --name py312",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return containers{a}.makeAndPrint(cmd.Context(), f.local, func(ctx context.Context) (image.Image, error) {
				return containers{a}.pullImage(ctx, args[0], f, plain)
			})
		},
	}
	f.addFlags(cmd)
	cmd.Flags().BoolVar(&plain, "plain-http", false, "the registry has no TLS")
	return cmd
}

// makeAndPrint makes an image, sends it to the daemon unless local is set, and prints it.
func (a containers) makeAndPrint(ctx context.Context, local bool,
	make func(ctx context.Context) (image.Image, error)) error {
	img, err := make(ctx)
	if err != nil {
		return buildError(err)
	}
	if local {
		info, err := localInfo(img)
		if err != nil {
			return err
		}
		return a.app.printImage(info)
	}
	return a.app.withClient(ctx, func(ctx context.Context, c *client.Client) error {
		info, err := a.app.pushImage(ctx, c, img)
		if err != nil {
			return err
		}
		return a.app.printImage(info)
	})
}

// pullImage makes an image of this user's own store from an image in a registry.
func (a containers) pullImage(ctx context.Context, ref string, f containerFlags, plain bool) (image.Image, error) {
	if f.name == "" {
		f.name = ociimage.NameOf(ref)
	}
	return a.makeImage(ctx, f, func(cache *ociimage.Cache) (*ociimage.Image, error) {
		p := ociimage.Pull{Ref: ref, Cache: cache, PlainHTTP: plain}
		if err := registries.Apply(&p); err != nil {
			return nil, err
		}
		return ociimage.Resolve(ctx, p)
	})
}

// makeImage makes an image of this user's own store from the container image that open returns.
func (a containers) makeImage(ctx context.Context, f containerFlags,
	open func(*ociimage.Cache) (*ociimage.Image, error)) (image.Image, error) {
	paths, err := endpoint.DefaultPaths()
	if err != nil {
		return image.Image{}, err
	}
	cache, err := ociimage.OpenCache(filepath.Join(paths.Cache, "blobs"))
	if err != nil {
		return image.Image{}, err
	}
	defer cache.Close()
	source, err := open(cache)
	if err != nil {
		return image.Image{}, err
	}
	defer source.Close()
	build, err := localBuild(paths)
	if err != nil {
		return image.Image{}, err
	}
	root := source.Foreign()
	root.Name, root.Modules = f.name, f.modules
	if f.start {
		if root.Start, root.Ready, err = source.Service(); err != nil {
			return image.Image{}, fmt.Errorf("start the program of %s: %w; leave out --start, and run a program with "+
				"`forkd run --entrypoint PROGRAM` or `forkd service add`", f.name, err)
		}
	}
	progress := a.app.Progress()
	defer progress.End()
	build.Progress = showImageProgress(progress)
	return image.BuildForeign(ctx, build, root)
}

// ensurePulled returns the daemon's image of a reference. It pulls the image if the daemon has none.
func (a containers) ensurePulled(ctx context.Context, c *client.Client, ref string) (api.Image, error) {
	canonical, err := ociimage.Canonical(ref)
	if err != nil {
		return api.Image{}, buildError(err)
	}
	have, err := c.Image(ctx, ociimage.NameOf(ref))
	if err == nil && have.Container != nil && have.Container.Reference == canonical {
		return have, nil
	}
	img, err := a.pullImage(ctx, ref, containerFlags{}, false)
	if err != nil {
		return api.Image{}, buildError(err)
	}
	return a.app.pushImage(ctx, c, img)
}

// ensureReference returns the name of an image. A reference is pulled first, if the daemon does not have it.
func (a containers) ensureReference(ctx context.Context, c *client.Client, name string) (string, error) {
	if !ociimage.IsReference(name) {
		return name, nil
	}
	img, err := a.ensurePulled(ctx, c, name)
	return img.Name, err
}
