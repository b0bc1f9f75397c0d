package mcp

import (
	"context"
	"fmt"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// addLifeTools adds the tools for the lifetime and the state of sandboxes.
func addLifeTools(r *registry) {
	add(r, tool{name: "keep_sandbox", title: "Keep a sandbox", about: "Let a sandbox of this session outlive the " +
		"session. It then runs until its deadline, if it has one, or until somebody kills it.", effect: changes}, keep)
	type pause struct {
		bySandbox
		FilesystemOnly bool `json:"filesystem_only,omitempty" jsonschema:"keep the disk without the memory: processes end, and the sandbox boots when it is resumed"`
	}
	add(r, tool{name: "pause_sandbox", title: "Pause a sandbox", about: "Pause a sandbox. It uses no memory until " +
		"resume_sandbox, and then continues where it was. Its open connections end.", effect: changes},
		func(ctx context.Context, c call, in pause) (sandboxInfo, error) {
			req := api.PauseRequest{FilesystemOnly: in.FilesystemOnly}
			sb, err := client.Life{Client: c.client}.Pause(ctx, in.SandboxID, req)
			return c.info(sb), err
		})
	add(r, tool{name: "resume_sandbox", title: "Resume a sandbox", about: "Let a paused sandbox continue. A running " +
		"one stays as it is.", effect: changes},
		func(ctx context.Context, c call, in bySandbox) (sandboxInfo, error) {
			sb, err := client.Life{Client: c.client}.Resume(ctx, in.SandboxID)
			return c.info(sb), err
		})
	type rollback struct {
		bySandbox
		SnapshotTag string `json:"snapshot_tag" jsonschema:"snapshot to go back to: one the sandbox came from, or one that was branched from it"`
	}
	add(r, tool{name: "rollback_sandbox", title: "Roll a sandbox back", about: "Put a sandbox back to a snapshot of its " +
		"own history, in place: memory, processes and files are as they were then. What happened since is lost, unless " +
		"branch_sandbox saved it.", effect: destroys},
		func(ctx context.Context, c call, in rollback) (sandboxInfo, error) {
			sb, err := c.client.Rollback(ctx, in.SandboxID, in.SnapshotTag)
			return c.info(sb), err
		})
}

type kept struct {
	ID           string `json:"id"`
	Kept         bool   `json:"kept"`
	DeadlineUnix *int64 `json:"deadline_unix,omitempty" jsonschema:"when it ends; absent: never"`
}

func keep(ctx context.Context, c call, in bySandbox) (kept, error) {
	if mine, _ := c.lease.State(in.SandboxID); !mine {
		return kept{}, invalid(fmt.Sprintf("sandbox %s is not one of this session's: it does not end with it", in.SandboxID),
			"list_sandboxes shows the sandboxes of this session")
	}
	end, err := c.lease.Keep(ctx, in.SandboxID)
	if err != nil {
		return kept{}, err
	}
	out := kept{ID: in.SandboxID, Kept: true}
	if !end.IsZero() {
		at := end.Unix()
		out.DeadlineUnix = &at
	}
	return out, nil
}
