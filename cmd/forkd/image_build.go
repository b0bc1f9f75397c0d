//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/sys/platform"
)

func newImageBuildCommand(a *app) *cobra.Command {
	var local bool
	var dockerfile dockerfileOptions
	cmd := &cobra.Command{
		Use:   "build RECIPE|PATH",
		Short: "Build an image from a recipe, or a snapshot from a Dockerfile",
		Long: "Build an image from a recipe: a recipe file, its folder, or the name of a recipe in recipes/. The\n" +
			"image is built on this host, and uploaded unless the daemon has it. Unchanged parts come from the\n" +
			"cache.\n\n" +
			"If PATH is a folder with a Dockerfile, or with --file, build a snapshot from the Dockerfile. PATH\n" +
			"has the files for COPY. Each step runs in a sandbox. Unchanged steps come from the daemon. All flags\n" +
			"except --local are for Dockerfiles.",
		Example: "  forkd image build recipes/python-numpy\n  forkd image build python-numpy\n" +
			"  forkd image build -t app .\n  forkd image build -f Dockerfile.dev --build-arg VERSION=3 -t app .",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if dockerfile.isDockerfile(args[0]) {
				if local {
					return exit.UsageError{Err: errors.New("--local is not for a Dockerfile: its steps run in sandboxes of a daemon")}
				}
				return dockerfiles{a}.build(cmd.Context(), args[0], dockerfile, cmd.InOrStdin())
			}
			for _, name := range dockerfileFlags {
				if cmd.Flags().Changed(name) {
					return exit.UsageError{Err: fmt.Errorf("--%s is for a Dockerfile, and %s has none", name, args[0])}
				}
			}
			img, err := a.buildImage(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if local {
				info, err := localInfo(img)
				if err != nil {
					return err
				}
				return a.printImage(info)
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				info, err := a.pushImage(ctx, c, img)
				if err != nil {
					return err
				}
				return a.printImage(info)
			})
		},
	}
	cmd.Flags().BoolVar(&local, "local", false, "build only, without an upload to a daemon")
	dockerfile.addFlags(cmd)
	return cmd
}

func (a *app) printImage(info api.Image) error {
	if a.JSON {
		return a.Value(info)
	}
	return a.Line("%s %s", info.Name, info.Digest)
}

// buildImage builds a recipe into this user's own store.
func (a *app) buildImage(ctx context.Context, name string) (image.Image, error) {
	if err := platform.Check(runtime.GOOS, runtime.GOARCH); err != nil {
		return image.Image{}, err
	}
	path, err := findRecipe(name)
	if err != nil {
		return image.Image{}, err
	}
	img, err := a.buildRecipe(ctx, path)
	return img, buildError(err)
}

func (a *app) buildRecipe(ctx context.Context, path string) (image.Image, error) {
	recipe, err := image.LoadRecipe(path)
	if err != nil {
		return image.Image{}, err
	}
	paths, err := endpoint.DefaultPaths()
	if err != nil {
		return image.Image{}, err
	}
	build, err := localBuild(paths)
	if err != nil {
		return image.Image{}, err
	}
	progress := a.Progress()
	defer progress.End()
	build.Recipe, build.Progress = recipe, showImageProgress(progress)
	return image.Build(ctx, build)
}

// localBuild returns the settings of builds into this user's own store. The store is beside the
// cache, to share its files.
func localBuild(paths endpoint.Paths) (c image.BuildConfig, err error) {
	c.Cache = filepath.Join(paths.Cache, "parts")
	if c.Store, err = image.OpenStore(filepath.Join(paths.Cache, "built")); err != nil {
		return c, err
	}
	c.Agent, err = endpoint.Program("forkd-agent")
	return c, err
}

// buildError gives a build failure the API's code for its kind.
func buildError(err error) error {
	switch {
	case errors.Is(err, image.ErrRecipe), errors.Is(err, image.ErrName):
		return codedError{err, api.CodeInvalid}
	case errors.Is(err, image.ErrNotFound), errors.Is(err, ociimage.ErrNotFound):
		return codedError{err, api.CodeNotFound}
	case errors.Is(err, ociimage.ErrInvalid):
		return codedError{err, api.CodeInvalid}
	case errors.Is(err, ociimage.ErrPlatform):
		return codedError{err, api.CodeUnsupported}
	case errors.Is(err, syscall.ENOSPC):
		return codedError{err, api.CodeNoSpace}
	}
	return err
}

func showImageProgress(p *ui.Progress) func(image.Progress) {
	return func(s image.Progress) {
		name := string(s.Step)
		switch {
		case s.Done && s.Cached:
			p.Done(name, "cached")
		case s.Done:
			p.Done(name, s.Detail)
		default:
			p.Step(name, s.Fraction)
		}
	}
}

// pushImage sends an image to the daemon, unless the daemon has the same image.
func (a *app) pushImage(ctx context.Context, c *client.Client, img image.Image) (api.Image, error) {
	id, err := img.ID()
	if err != nil {
		return api.Image{}, err
	}
	digest := "sha256:" + id
	has, err := c.HasImage(ctx, img.Name, digest)
	if err != nil {
		return api.Image{}, err
	}
	if has {
		return c.Image(ctx, img.Name)
	}
	progress := a.Progress()
	defer progress.End()
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(img.Export(ctx, w, showImageProgress(progress)))
	}()
	info, err := c.ImportImage(ctx, img.Name, digest, r)
	r.CloseWithError(io.ErrClosedPipe) // ends the export if the daemon stopped reading
	<-done
	return info, err
}

// ensureImage returns the daemon's image with this name. It builds a recipe first if needed.
func (a *app) ensureImage(ctx context.Context, c *client.Client, name string) (api.Image, error) {
	img, err := c.Image(ctx, name)
	if err == nil || !client.IsNotFound(err) && client.CodeOf(err) != api.CodeInvalid {
		return img, err
	}
	if _, missing := findRecipe(name); missing != nil {
		if ociimage.IsReference(name) {
			return containers{a}.ensurePulled(ctx, c, name)
		}
		return api.Image{}, err
	}
	built, err := a.buildImage(ctx, name)
	if err != nil {
		return api.Image{}, err
	}
	return a.pushImage(ctx, c, built)
}

func localInfo(img image.Image) (api.Image, error) {
	id, err := img.ID()
	return api.Image{
		Name: img.Name, Digest: "sha256:" + id, SizeBytes: img.Size(), CreatedAtUnix: img.Created.Unix(),
		KernelVersion: img.Metadata.Kernel.Release, MemoryMiB: img.Defaults.MemoryMiB, VCPUs: img.Defaults.VCPUs,
		Description: img.Description, Container: wireContainer(img),
	}, err
}

// findRecipe finds a recipe by its path, or by its name in the directories of recipes.
func findRecipe(name string) (string, error) {
	places := []string{name, filepath.Join("recipes", name)}
	if self, err := os.Executable(); err == nil {
		dir := filepath.Dir(self)
		places = append(places, filepath.Join(dir, "..", "recipes", name),
			filepath.Join(dir, "..", "share", "forkd", "recipes", name),
			filepath.Join(dir, "..", "..", "share", "forkd", "recipes", name)) // of a package
	}
	for _, p := range places {
		if st, err := os.Stat(p); err == nil && st.IsDir() {
			p = filepath.Join(p, image.RecipeFile)
		}
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			return p, nil
		}
	}
	return "", hints.With(&client.Error{
		Code: api.CodeNotFound, Message: fmt.Sprintf("no recipe %q", name),
	}, "name a recipe's file, its folder, or a folder in recipes/")
}
