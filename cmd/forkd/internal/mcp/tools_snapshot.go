package mcp

import (
	"context"
	"fmt"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/lineage"
)

// addSnapshotTools adds the tools for snapshots.
func addSnapshotTools(r *registry) {
	type listed struct {
		Snapshots []snapshotInfo `json:"snapshots"`
		More      int            `json:"more,omitempty" jsonschema:"number of snapshots left out"`
	}
	add(r, tool{name: "list_snapshots", title: "List snapshots", about: "List the snapshots that sandboxes can be " +
		"forked from, sorted by tag.", effect: reads},
		func(ctx context.Context, c call, _ none) (listed, error) {
			all, err := c.client.ListSnapshots(ctx)
			infos := make([]snapshotInfo, 0, len(all))
			for _, s := range all {
				infos = append(infos, c.snapshot(s))
			}
			out, more := cut(infos)
			return listed{out, more}, err
		})
	add(r, tool{name: "create_snapshot", title: "Create a snapshot", about: "Make a snapshot to fork from: boot an " +
		"image and warm it up, or fork an existing snapshot (from), run a command and warm-up " +
		"code in it, and keep the result. " +
		"It takes seconds to minutes and reports progress. If the command fails no snapshot is made.",
		effect: adds, outside: true}, createSnapshot)
	type tree struct {
		Tree string `json:"tree" jsonschema:"one line per snapshot and sandbox, children indented below their parent"`
	}
	add(r, tool{name: "snapshot_tree", title: "Fork tree", about: "Draw which snapshots and sandboxes came of which.",
		effect: reads},
		func(ctx context.Context, c call, _ none) (tree, error) {
			text, err := forkTree(ctx, c.client)
			texts, notes := c.brief(map[string][]byte{"stdout": []byte(text)})
			for _, n := range notes {
				texts["stdout"] += "\n" + n
			}
			return tree{texts["stdout"]}, err
		})
	addDiffTool(r)
	type deletion struct {
		Tag string `json:"tag" jsonschema:"snapshot that this session made"`
	}
	type deleted struct {
		Tag     string `json:"tag"`
		Deleted bool   `json:"deleted"`
	}
	add(r, tool{name: "delete_snapshot", title: "Delete a snapshot", about: "Delete a snapshot that this session made " +
		"and no sandbox or snapshot needs. Other snapshots cannot be deleted here.", effect: destroys},
		func(ctx context.Context, c call, in deletion) (deleted, error) {
			if !c.hasMade(in.Tag) {
				return deleted{}, hintedForbidden(in.Tag)
			}
			err := c.client.DeleteSnapshot(ctx, in.Tag, client.DeleteOptions{})
			return deleted{in.Tag, err == nil}, err
		})
}

func hintedForbidden(tag string) error {
	return &client.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("snapshot %s was not made by this session, and "+
		"this server deletes no others", tag)}
}

type creation struct {
	Tag             string  `json:"tag" jsonschema:"name of the snapshot: 1 to 64 letters, digits, - or _"`
	Image           string  `json:"image,omitempty" jsonschema:"built image to boot; one of image, from and kernel is needed"`
	From            string  `json:"from,omitempty" jsonschema:"snapshot to build on"`
	Command         string  `json:"command,omitempty" jsonschema:"with from: shell command to run in the child, such as pip install pandas"`
	CommandUser     string  `json:"command_user,omitempty" jsonschema:"user to run the command as, such as root"`
	CommandTimeout  float64 `json:"command_timeout_secs,omitempty" jsonschema:"limit of the command; 600 if absent"`
	Warm            string  `json:"warm,omitempty" jsonschema:"Python code to run in the warm interpreter, such as import pandas"`
	WarmTimeoutSecs float64 `json:"warm_timeout_secs,omitempty" jsonschema:"limit of the warm-up; 600 if absent"`
	MemoryMiB       int     `json:"memory_mib,omitempty" jsonschema:"with image: memory of the guest"`
	VCPUs           int     `json:"vcpus,omitempty" jsonschema:"with image: virtual CPUs"`
	BuildNetwork    string  `json:"build_network,omitempty" jsonschema:"network while the snapshot is made: none or public"`

	Kernel       string  `json:"kernel,omitempty" jsonschema:"kernel on the daemon's host, instead of an image"`
	Rootfs       string  `json:"rootfs,omitempty" jsonschema:"root image on the daemon's host, with kernel"`
	RW           bool    `json:"rw,omitempty" jsonschema:"accepted and not needed"`
	Tap          *string `json:"tap,omitempty" jsonschema:"tap device on the daemon's host while the snapshot is made"`
	BootWaitSecs int     `json:"boot_wait_secs,omitempty" jsonschema:"limit for the guest to get ready, at most 60"`
}

func createSnapshot(ctx context.Context, c call, in creation) (snapshotInfo, error) {
	req := api.CreateSnapshotRequest{
		Tag: in.Tag, Image: in.Image, From: in.From, Warm: in.Warm, WarmTimeoutSecs: in.WarmTimeoutSecs,
		MemoryMiB: in.MemoryMiB, VCPUs: in.VCPUs, BuildNet: api.Net(in.BuildNetwork), Kernel: in.Kernel,
		Rootfs: in.Rootfs, RW: in.RW, Tap: in.Tap, BootWaitSecs: in.BootWaitSecs,
	}
	if in.Command != "" {
		req.Exec, req.ExecUser, req.ExecTimeoutSecs = []string{"/bin/sh", "-c", in.Command}, in.CommandUser, in.CommandTimeout
	}
	steps := 0.0
	made, err := c.client.CreateSnapshot(ctx, req, func(s api.Step) {
		steps++
		if text := stepText(s); text != "" {
			c.tell(steps, 0, text)
		}
	})
	if err != nil {
		return snapshotInfo{}, err
	}
	c.noteMade(made.Tag)
	return c.snapshot(made), nil
}

// stepText describes a step of a snapshot's creation. It is empty for a step that needs no report.
func stepText(s api.Step) string {
	switch {
	case s.Output != "":
		return ""
	case s.Note != "":
		return s.Step + ": " + s.Note
	case s.Done:
		return fmt.Sprintf("%s: done in %.0f ms", s.Step, s.TookMS)
	case s.Total > 0:
		return fmt.Sprintf("%s: %d of %d bytes", s.Step, s.Bytes, s.Total)
	}
	return s.Step
}

// treeSandboxes limits the drawn sandboxes of one snapshot.
const treeSandboxes = 20

// forkTree draws the fork tree as text.
func forkTree(ctx context.Context, c *client.Client) (string, error) {
	snapshots, err := c.ListSnapshots(ctx)
	if err != nil {
		return "", err
	}
	sandboxes, err := c.ListSandboxes(ctx)
	if err != nil {
		return "", err
	}
	text := ""
	for _, l := range lineage.Draw(lineage.Build(snapshots, sandboxes), treeSandboxes) {
		text += l.Branch + treeLine(l) + "\n"
	}
	return text, nil
}

func treeLine(l lineage.Line) string {
	switch {
	case l.Sandbox != nil:
		return fmt.Sprintf("sandbox %s %s", l.Sandbox.ID, l.Sandbox.Status)
	case l.More > 0:
		return fmt.Sprintf("... and %d more sandboxes", l.More)
	case l.Node.Snapshot == nil:
		return fmt.Sprintf("snapshot %s deleted", l.Node.Tag)
	}
	line := fmt.Sprintf("snapshot %s %s", l.Node.Tag, l.Node.Snapshot.Status)
	if from := textOf(l.Node.Snapshot.BranchedFrom); from != "" {
		line += " branched from " + from
	}
	return line
}
