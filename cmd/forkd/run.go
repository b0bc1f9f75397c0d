package main

import (
	"context"
	"errors"
	"fmt"
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
	run := freshRun{}
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
			"command of a container image run. The first interrupt sends such a program its stop signal, and\n" +
			"after --stop-timeout it is killed; a second interrupt kills it at once. Any other program is killed\n" +
			"by the first one, unless --stop-signal or --stop-timeout is given.\n\n" +
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
			f := cmd.Flags()
			run.stop.asked = f.Changed("stop-signal") || f.Changed("stop-timeout")
			if err := run.stop.check(); err != nil {
				return err
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
				run.streams, run.image, run.program, run.req = s, args[0], program, req
				return a.runInFresh(ctx, c, run)
			})
		},
	}
	s.addFlags(cmd)
	labelled = addLabelFlag(cmd.Flags(), "the sandbox")
	network.addFlags(cmd, "none")
	limits.addFlags(cmd)
	secrets.addFlags(cmd.Flags())
	run.stop.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&run.entrypoint, "entrypoint", "", "run `PROGRAM` of the image in place of its entrypoint and command; the arguments after IMAGE are PROGRAM's")
	cmd.Flags().BoolVar(&run.keep, "keep", false, "leave the sandbox running")
	return cmd
}

// freshRun is a program in a sandbox of its own.
type freshRun struct {
	streams
	image      string   // name, reference or snapshot
	program    []string // empty for the image's
	entrypoint string   // takes the place of the image's, if not empty
	stop       stopFlags
	keep       bool
	req        api.CreateSandboxesRequest
}

// own reports whether the image's program runs, perhaps with another entrypoint.
func (r freshRun) own() bool { return len(r.program) == 0 || r.entrypoint != "" }

// stoppable reports whether the program is asked to end before it is killed.
func (r freshRun) stoppable() bool { return r.own() || r.stop.asked }

func (a *app) runInFresh(ctx context.Context, c *client.Client, r freshRun) error {
	parent, err := parentOfRun(ctx, a, c, r)
	if err != nil {
		return err
	}
	r.req.SnapshotTag = parent.tag
	res, err := c.Fork(ctx, r.req)
	if err != nil {
		return err
	}
	noteNetwork(&a.Printer, res.Sandboxes)
	id := res.Sandboxes[0].ID
	if r.keep {
		a.Note("sandbox %s", id)
	} else {
		defer a.remove(ctx, c, id)
	}
	if r.stoppable() && parent.name == "" {
		parent.name = "snapshot " + parent.tag
		if parent.config, err = imagebuild.ReadConfig(ctx, c, id); err != nil {
			return err
		}
		if err := r.check(parent); err != nil {
			return err
		}
	}
	return runStoppable(ctx, a, c, id, r, parent)
}

// runStoppable runs a program. The first interrupt asks a stoppable one to end.
func runStoppable(ctx context.Context, a *app, c *client.Client, id string, r freshRun, parent runParent) error {
	program := initprogram.Command(r.words(parent.config))
	if !r.stoppable() {
		return explainInit(program, a.runProgram(ctx, c, id, program, r.streams))
	}
	stop, err := r.stop.of(parent.name, parent.config.StopSignal, a.Note)
	if err != nil {
		return err
	}
	running, signals, release := stop.guard(ctx)
	defer release()
	r.signals = signals
	return explainInit(program, a.runProgram(running, c, id, program, r.streams))
}

// explainInit explains the error of an init in a snapshot whose agent is older than the command for inits.
func explainInit(program []string, err error) error {
	if program[0] != initprogram.Runner || !errors.Is(err, client.ErrNoProgram) {
		return err
	}
	return hints.With(err, "the snapshot's agent is too old to run an init; make the snapshot again from its image")
}

// words returns the program and its arguments.
func (r freshRun) words(c imagebuild.Config) []string {
	switch {
	case r.entrypoint != "":
		return append([]string{r.entrypoint}, r.program...)
	case len(r.program) > 0:
		return r.program
	}
	return c.Program()
}

// check returns an error if the image's program cannot run, or cannot be stopped.
func (r freshRun) check(p runParent) error {
	if len(r.words(p.config)) == 0 {
		return exit.UsageError{Err: fmt.Errorf("%s has no default program; name one after it", p.name)}
	}
	_, err := r.stop.of(p.name, p.config.StopSignal, nil)
	return err
}

// runParent is the snapshot for a run of an image.
type runParent struct {
	tag    string
	name   string            // of the image or snapshot, for people; empty if the settings are in the snapshot only
	config imagebuild.Config // settings of the image
}

// parentOfRun returns the snapshot for a run of an image. The name may be that of a snapshot, such as one that
// was built from a Dockerfile.
func parentOfRun(ctx context.Context, a *app, c *client.Client, r freshRun) (runParent, error) {
	if tag := snapshotOf(ctx, a, c, r.image); tag != "" {
		return runParent{tag: tag}, nil
	}
	img, err := a.ensureImage(ctx, c, r.image)
	if client.IsNotFound(err) && !strings.ContainsAny(r.image, "/:@.") {
		if info, missing := c.Snapshot(ctx, r.image); missing == nil {
			return runParent{tag: info.Tag}, nil
		}
	}
	if err != nil {
		return runParent{}, err
	}
	p := runParent{name: "image " + img.Name, config: imagebuild.OfImage(img)}
	if img.Start != "" && len(r.program) == 0 && r.entrypoint == "" {
		return p, exit.UsageError{Err: fmt.Errorf("the program of image %s runs in its snapshot already; "+
			"name another program after it, or fork the snapshot", img.Name)}
	}
	if r.stoppable() {
		if err := r.check(p); err != nil {
			return p, err
		}
	}
	p.tag, err = a.ensureSnapshot(ctx, c, img)
	return p, err
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
