package branchbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
)

// prefix begins the tags of all snapshots that this benchmark makes.
const prefix = "bench-branch-"

// sourceTag is of a snapshot of so many MiB, branchTag of a sandbox's nth branch.
func sourceTag(mib int) string               { return fmt.Sprintf("%s%d", prefix, mib) }
func branchTag(sandbox string, n int) string { return fmt.Sprintf("%s%s-%d", prefix, sandbox, n) }

// ownTag is what those give, and hardly anything that a person would think of.
var ownTag = regexp.MustCompile(`^` + prefix + `([0-9]+|sb-([a-z2-7]{16}|[0-9a-f]{8}-[0-9]{4,})-[0-9]+)$`)

// Sources are the snapshots to branch children of.
type Sources struct {
	Client *client.Client
	Image  string
	// Create makes one, and shows how far it is.
	Create func(context.Context, api.CreateSnapshotRequest) (api.SnapshotInfo, error)

	made []string
}

// Make makes a snapshot for each size of memory, in MiB. Remove is to be called
// after an error, too.
func (s *Sources) Make(ctx context.Context, memory []int) (tags []string, err error) {
	for _, mib := range memory {
		tag := sourceTag(mib)
		tags = append(tags, tag)
		if slices.Contains(s.made, tag) {
			continue
		}
		_, err := s.Create(ctx, api.CreateSnapshotRequest{Tag: tag, Image: s.Image, MemoryMiB: mib})
		if err == nil || client.CodeOf(err) != api.CodeConflict { // else it is not ours; interrupted, it may be there
			s.made = append(s.made, tag)
		}
		if err != nil {
			return nil, err
		}
	}
	return tags, nil
}

// Remove deletes what was made, also when ctx has ended.
func (s *Sources) Remove(ctx context.Context) error {
	var errs []error
	for _, tag := range s.made {
		errs = append(errs, measure.Delete(ctx, s.Client, tag, client.DeleteOptions{}))
	}
	return errors.Join(errs...)
}

// Sweep removes what an earlier run left that was killed and could not clean up:
// snapshots by their names, the sandboxes that run from them, and those that they
// were branched from. No other run may be under way. What is named to be kept is; say is told of
// each that goes.
func Sweep(ctx context.Context, c *client.Client, keep []string, say func(string)) error {
	snapshots, err := c.ListSnapshots(ctx)
	if err != nil {
		return err
	}
	sandboxes, err := c.ListSandboxes(ctx)
	if err != nil {
		return err
	}
	var left []string
	branched := map[string]bool{} // sandboxes
	for _, s := range snapshots {
		if ownTag.MatchString(s.Tag) && !slices.Contains(keep, s.Tag) {
			left = append(left, s.Tag)
			if s.BranchedFrom != nil {
				branched[*s.BranchedFrom] = true
			}
		}
	}
	for _, sb := range sandboxes {
		if !branched[sb.ID] && !slices.Contains(left, sb.SnapshotTag) {
			continue
		}
		say(fmt.Sprintf("sandbox %s was left by an earlier run, and is killed", sb.ID))
		if err := measure.Kill(ctx, c, []api.SandboxInfo{sb}); err != nil {
			return err
		}
	}
	// What was branched comes before what it was branched from.
	slices.SortFunc(left, func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(b, a)) })
	for _, tag := range left {
		say(fmt.Sprintf("snapshot %s was left by an earlier run, and is deleted", tag))
		if err := measure.Delete(ctx, c, tag, client.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}
