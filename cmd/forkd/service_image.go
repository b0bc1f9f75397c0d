package main

import (
	"context"
	"fmt"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/imagebuild"
	"github.com/forkd/forkd/cmd/internal/exit"
)

// serviceOfImage fills in the program of a sandbox's container image, its health check and its stop signal. A
// declared check or signal takes the place of the image's.
func serviceOfImage(ctx context.Context, c *client.Client, id string, spec *api.ServiceSpec, noCheck bool) error {
	name, config, err := configOfSandbox(ctx, c, id)
	if err != nil {
		return err
	}
	if spec.StopSignal != "" {
		config.StopSignal = spec.StopSignal
	}
	ownCheck := !noCheck && spec.Port == 0 && spec.Ready == nil
	if !ownCheck {
		config.Healthcheck = nil
	}
	own, err := config.Service()
	if err != nil {
		return exit.UsageError{Err: fmt.Errorf("%s: %w", name, err)}
	}
	spec.Command, spec.StopSignal = own.Command, own.StopSignal
	if ownCheck && own.Ready != nil {
		spec.Ready = own.Ready
		if spec.Liveness == nil {
			spec.Liveness = own.Liveness
		}
	}
	return nil
}

// configOfSandbox returns the settings of a sandbox's container image, and what to call it. Those of a Dockerfile are in
// the sandbox. Others are of the image that its snapshot was made of.
func configOfSandbox(ctx context.Context, c *client.Client, id string) (string, imagebuild.Config, error) {
	config, err := imagebuild.ReadConfig(ctx, c, id)
	if err != nil || len(config.Program()) > 0 {
		return "sandbox " + id, config, err
	}
	sb, err := c.Sandbox(ctx, id)
	if err != nil {
		return "", config, err
	}
	snapshot, err := c.Snapshot(ctx, sb.SnapshotTag)
	if err != nil {
		return "", config, err
	}
	name := "image " + snapshot.Image
	img, err := c.Image(ctx, snapshot.Image)
	refuse := func(reason string) (string, imagebuild.Config, error) {
		return name, config, exit.UsageError{Err: fmt.Errorf("%s %s: name a program after --", name, reason)}
	}
	switch {
	case snapshot.Image == "":
		name = "snapshot " + snapshot.Tag
		return refuse("was made of no image")
	case client.IsNotFound(err):
		return refuse("is gone")
	case err != nil:
		return name, config, err
	case snapshot.ImageDigest != "" && img.Digest != snapshot.ImageDigest:
		return refuse("is another one than that of snapshot " + snapshot.Tag)
	case img.Start != "":
		return refuse("has its program running in its snapshot already")
	}
	return name, imagebuild.OfImage(img), nil
}
