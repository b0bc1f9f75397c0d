package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/imagebuild"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/cmd/internal/snapshots"
	"github.com/forkd/forkd/internal/leaf/initprogram"
)

func newRunCommand(a *app) *cobra.Command {
	var s streams
	var keep bool
	var secrets secretFlags
	var network netFlags
	var limits limitFlags
	var labelled *labelFlag
	cmd := &cobra.Command{
		Use:   "run [flags] IMAGE [--] [PROGRAM [ARG...]]",
		Short: "Run a program in a new sandbox, and remove the sandbox",
		Long: "Run a program in a new sandbox, and remove the sandbox. IMAGE is the name of an image, a recipe\n" +
			"file or its folder, or the reference of a container image or of a snapshot, with a registry.\n" +
			"Recipes are built and container images pulled first if necessary. The first run of an image makes\n" +
			"its warm snapshot run-IMAGE-DIGEST; later runs fork from it. Without PROGRAM, the entrypoint and\n" +
			"command of a container image run.\n\n" +
			"Exit codes are the same as for exec.",
		Example: "  forkd run python-numpy -- python3 -c 'import numpy; print(numpy.__version__)'\n" +
			"  forkd run -it base bash\n" +
			"  forkd run registry.example.com/team/app:1.4",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.complete().images(),
		RunE: func(cmd *cobra.Command, args []string) error {
			program := args[1:]
			if len(program) > 0 && program[0] == "--" {
				program = program[1:]
			}
			policy, err := network.policy()
			if err != nil {
				return err
			}
			refs, err := secrets.refs()
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				req := api.CreateSandboxesRequest{Network: policy, Labels: labelled.set, Secrets: refs}
				limits.ask(&req)
				return a.runInFresh(ctx, c, args[0], program, s, keep, req)
			})
		},
	}
	s.addFlags(cmd)
	labelled = addLabelFlag(cmd.Flags(), "the sandbox")
	network.addFlags(cmd, "none")
	limits.addFlags(cmd)
	secrets.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the sandbox running")
	return cmd
}

func (a *app) runInFresh(ctx context.Context, c *client.Client, imageName string, program []string, s streams,
	keep bool, req api.CreateSandboxesRequest) error {
	tag, program, err := parentOfRun(ctx, a, c, imageName, program)
	if err != nil {
		return err
	}
	req.SnapshotTag = tag
	res, err := c.Fork(ctx, req)
	if err != nil {
		return err
	}
	noteNetwork(&a.Printer, res.Sandboxes)
	id := res.Sandboxes[0].ID
	if keep {
		a.Note("sandbox %s", id)
	} else {
		defer a.remove(ctx, c, id)
	}
	if len(program) == 0 {
		config, err := imagebuild.ReadConfig(ctx, c, id)
		if err != nil {
			return err
		}
		if program = config.Program(); len(program) == 0 {
			return exit.UsageError{Err: fmt.Errorf("snapshot %s has no default program; name one after it", tag)}
		}
	}
	return a.runProgram(ctx, c, id, program, s)
}

// parentOfRun returns the snapshot for a run of an image, and its program. The name may be that of a
// snapshot, such as one that was built from a Dockerfile. The program is then in the snapshot, and
// may be returned empty.
func parentOfRun(ctx context.Context, a *app, c *client.Client, name string,
	program []string) (string, []string, error) {
	if tag := snapshotOf(ctx, a, c, name); tag != "" {
		return tag, program, nil
	}
	img, err := a.ensureImage(ctx, c, name)
	if client.IsNotFound(err) && !strings.ContainsAny(name, "/:@.") {
		if info, missing := c.Snapshot(ctx, name); missing == nil {
			return info.Tag, program, nil
		}
	}
	if err != nil {
		return "", nil, err
	}
	if len(program) == 0 {
		if program, err = defaultProgram(img); err != nil {
			return "", nil, err
		}
	}
	tag, err := a.ensureSnapshot(ctx, c, img)
	return tag, program, err
}

// defaultProgram returns the entrypoint and the command of a container image.
func defaultProgram(img api.Image) ([]string, error) {
	if img.Start != "" {
		return nil, exit.UsageError{Err: fmt.Errorf("the program of image %s runs in its snapshot already; "+
			"name another program after it, or fork the snapshot", img.Name)}
	}
	var program []string
	if c := img.Container; c != nil {
		program = slices.Concat(c.Entrypoint, c.Cmd)
	}
	if initprogram.Is(program) {
		return nil, exit.UsageError{Err: fmt.Errorf("the program of image %s is %s, an init, which runs as the first "+
			"process only, and in a guest forkd's agent is that: name another program after the image", img.Name, program[0])}
	}
	if len(program) == 0 {
		return nil, exit.UsageError{Err: fmt.Errorf("image %s has no default program; name one after it", img.Name)}
	}
	return program, nil
}

// remove ends the sandbox even if the command was interrupted.
func (a *app) remove(ctx context.Context, c *client.Client, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := c.Kill(ctx, id); err != nil && !client.IsNotFound(err) {
		a.Note("sandbox %s is left behind: %v", id, err)
	}
}

// ensureSnapshot returns the tag of the image's snapshot, and makes the snapshot if needed.
func (a *app) ensureSnapshot(ctx context.Context, c *client.Client, img api.Image) (string, error) {
	tag := runTag(img)
	info, err := c.Snapshot(ctx, tag)
	switch {
	case err == nil && info.Status == api.SnapshotReady:
		return tag, nil
	case err == nil && info.Status == api.SnapshotWriting:
		return tag, snapshots.AwaitReady(ctx, c, tag)
	case err == nil:
		return "", hints.With(&client.Error{
			Code: api.CodeNotRestorable, Message: fmt.Sprintf("snapshot %s cannot be forked: %s", tag, text(info.Warning)),
		}, fmt.Sprintf("delete it with `forkd snapshot rm %s`, it is made again then", tag))
	case !client.IsNotFound(err):
		return "", err
	}
	_, err = a.createSnapshot(ctx, c, api.CreateSnapshotRequest{Tag: tag, Image: img.Name})
	if client.CodeOf(err) == api.CodeConflict { // another client began at the same time
		err = snapshots.AwaitReady(ctx, c, tag)
	}
	return tag, err
}

// runTag returns the tag of the snapshot for one build of an image.
func runTag(img api.Image) string {
	digest := strings.TrimPrefix(img.Digest, "sha256:")
	name := img.Name[:min(len(img.Name), 50)] // a tag has at most 64
	return fmt.Sprintf("run-%s-%s", name, digest[:min(len(digest), 8)])
}
