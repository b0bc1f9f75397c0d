package mcp

import (
	"context"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// addTimelineTools adds the tools that choose between sandboxes with a common past.
func addTimelineTools(r *registry) {
	add(r, tool{name: "keep_best", title: "Keep the best sandboxes", about: "Score sandboxes by the same measurement, " +
		"keep the best and end the others. The score is the number in the first line that a program prints, or of a " +
		"file. No sandbox ends before all have been scored. Those without a score stay, unless end_unscored is set.",
		effect: destroys, outside: true}, keepBest)
	add(r, tool{name: "promote_sandbox", title: "Promote a sandbox", about: "Put a sandbox in the place of the one it " +
		"was forked from. That one keeps its id, ports and settings, and continues with the memory, processes and files " +
		"of the promoted sandbox, whose own id ends. A snapshot keeps the old state, unless discard is set.",
		effect: destroys}, promote)
	add(r, tool{name: "merge_sandbox", title: "Merge files of a sibling", about: "Merge the files that another sandbox " +
		"or a snapshot with a common past has changed into a running sandbox. With conflicts left, no file is changed, " +
		"and the answer lists them: call again with resolve or paths. Use dry_run first. Memory and processes stay.",
		effect: destroys}, merge)
}

type keepIn struct {
	SandboxIDs  []string `json:"sandbox_ids,omitempty" jsonschema:"sandboxes to compare; instead of of"`
	Of          string   `json:"of,omitempty" jsonschema:"a snapshot or a sandbox, to compare all its children; instead of sandbox_ids"`
	Best        int      `json:"best" jsonschema:"how many to keep"`
	Args        []string `json:"args,omitempty" jsonschema:"program that prints the score and its arguments, run in each; instead of file"`
	File        string   `json:"file,omitempty" jsonschema:"file with the score in its first line; instead of args"`
	Lowest      bool     `json:"lowest,omitempty" jsonschema:"keep the lowest scores, not the highest"`
	TimeoutSecs float64  `json:"timeout_secs,omitempty" jsonschema:"limit for each score; 60 if absent"`
	EndUnscored bool     `json:"end_unscored,omitempty" jsonschema:"end sandboxes without a score too, if any other has one"`
	DryRun      bool     `json:"dry_run,omitempty" jsonschema:"only score them, and end none"`
}

type scored struct {
	ID      string   `json:"id"`
	Score   *float64 `json:"score,omitempty" jsonschema:"absent if it has none"`
	Outcome string   `json:"outcome" jsonschema:"kept, ended or gone; in a dry run the planned outcome"`
	Problem string   `json:"problem,omitempty" jsonschema:"why it has no score, or could not be ended"`
}

type keepOut struct {
	Sandboxes []scored `json:"sandboxes" jsonschema:"the best first"`
	More      int      `json:"more,omitempty" jsonschema:"number of sandboxes left out"`
	Kept      int      `json:"kept"`
	Ended     int      `json:"ended"`
	Unscored  int      `json:"unscored"`
	DryRun    bool     `json:"dry_run,omitempty"`
}

func keepBest(ctx context.Context, c call, in keepIn) (keepOut, error) {
	got, err := client.Keep(ctx, c.client, api.KeepRequest{IDs: in.SandboxIDs, Of: in.Of, Best: in.Best, Args: in.Args,
		File: in.File, Lowest: in.Lowest, TimeoutSecs: in.TimeoutSecs, EndUnscored: in.EndUnscored, DryRun: in.DryRun})
	if err != nil {
		return keepOut{}, err
	}
	for _, sb := range got.Sandboxes {
		if !got.DryRun && sb.Outcome != api.KeepKept {
			c.lease.Forget(sb.ID)
		}
	}
	out := keepOut{Kept: got.Kept, Ended: got.Ended, Unscored: got.Unscored, DryRun: got.DryRun}
	out.Sandboxes, out.More = cut(each(got.Sandboxes, func(e api.KeepEntry) scored {
		return scored{e.ID, e.Score, string(e.Outcome), e.Problem}
	}))
	return out, nil
}

type promoteIn struct {
	bySandbox
	Place   string `json:"place,omitempty" jsonschema:"sandbox that gives its place; the nearest ancestor if absent"`
	Tag     string `json:"tag,omitempty" jsonschema:"name of the snapshot that keeps the old state"`
	Discard bool   `json:"discard,omitempty" jsonschema:"keep no snapshot of the old state"`
}

type promoteOut struct {
	Sandbox      sandboxInfo `json:"sandbox" jsonschema:"the sandbox in its new place: continue with its id"`
	PromotedFrom string      `json:"promoted_from" jsonschema:"its id until then, which has ended"`
	KeptIn       string      `json:"kept_in,omitempty" jsonschema:"snapshot with the old state"`
}

func promote(ctx context.Context, c call, in promoteIn) (promoteOut, error) {
	req := api.PromoteRequest{Place: in.Place, Tag: in.Tag}
	if in.Discard {
		req.Parent = api.PromoteKill
	}
	got, err := client.Promote(ctx, c.client, in.SandboxID, req)
	if err != nil {
		return promoteOut{}, err
	}
	c.lease.Forget(in.SandboxID)
	if got.KeptIn != "" {
		c.noteMade(got.KeptIn)
	}
	return promoteOut{c.info(got.Sandbox), got.PromotedFrom, got.KeptIn}, nil
}

type mergeIn struct {
	bySandbox
	Theirs  string            `json:"theirs" jsonschema:"sandbox or snapshot with the changes to take over"`
	Base    string            `json:"base,omitempty" jsonschema:"snapshot that both come from; the nearest if absent"`
	Resolve string            `json:"resolve,omitempty" jsonschema:"ours or theirs: the version to take in all conflicts"`
	Paths   map[string]string `json:"paths,omitempty" jsonschema:"ours or theirs, by path"`
	DryRun  bool              `json:"dry_run,omitempty" jsonschema:"only list the changes and conflicts"`
}

type mergeChange struct {
	Path   string `json:"path"`
	Action string `json:"action" jsonschema:"added, modified, deleted or merged"`
}

type mergeConflict struct {
	Path     string `json:"path"`
	Text     string `json:"text" jsonschema:"the conflict as git words it"`
	Resolved string `json:"resolved,omitempty" jsonschema:"version that is taken; absent: it is left"`
}

type mergeSkipped struct {
	Path   string `json:"path,omitempty"`
	Reason string `json:"reason"`
}

type mergeOut struct {
	Base       string          `json:"base"`
	Applied    bool            `json:"applied" jsonschema:"the files were changed"`
	Changes    []mergeChange   `json:"changes"`
	More       int             `json:"more_changes,omitempty" jsonschema:"number of changes left out"`
	Conflicts  []mergeConflict `json:"conflicts"`
	Unresolved int             `json:"unresolved" jsonschema:"number of conflicts left"`
	Skipped    []mergeSkipped  `json:"skipped" jsonschema:"changes that cannot be merged"`
	Complete   bool            `json:"complete" jsonschema:"false if some files could not be looked at"`
}

func merge(ctx context.Context, c call, in mergeIn) (mergeOut, error) {
	req := api.MergeRequest{Theirs: in.Theirs, Base: in.Base, Resolve: api.MergeSide(in.Resolve), DryRun: in.DryRun}
	for path, side := range in.Paths {
		if req.Paths == nil {
			req.Paths = map[string]api.MergeSide{}
		}
		req.Paths[path] = api.MergeSide(side)
	}
	got, err := client.Merge(ctx, c.client, in.SandboxID, req)
	if err != nil {
		return mergeOut{}, err
	}
	out := mergeOut{Base: got.Base, Applied: got.Applied, Unresolved: got.Unresolved, Complete: got.Complete}
	out.Changes, out.More = cut(each(got.Changes, func(e api.MergeChange) mergeChange {
		return mergeChange{e.Path, string(e.Action)}
	}))
	out.Conflicts, _ = cut(each(got.Conflicts, func(e api.MergeConflict) mergeConflict {
		return mergeConflict{e.Path, e.Text, string(e.Resolved)}
	}))
	out.Skipped, _ = cut(each(got.Skipped, func(e api.MergeSkipped) mergeSkipped {
		return mergeSkipped{e.Path, e.Why}
	}))
	return out, nil
}
