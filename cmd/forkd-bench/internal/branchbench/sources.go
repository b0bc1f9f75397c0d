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

// prefix begins the tags of all snapshots of this benchmark.
const prefix = "bench-branch-"

// sourceTag is the tag of a snapshot of so many MiB. branchTag is the tag of a sandbox's nth
// branch.
func sourceTag(mib int) string               { return fmt.Sprintf("%s%d", prefix, mib) }
func branchTag(sandbox string, n int) string { return fmt.Sprintf("%s%s-%d", prefix, sandbox, n) }

// ownTag matches the results of sourceTag and branchTag. A user is unlikely to choose such a tag.
var ownTag = regexp.MustCompile(`^` + prefix + `([0-9]+|sb-([a-z2-7]{16}([a-z2-7]{5})?|[0-9a-f]{8}-[0-9]{4,})-[0-9]+)$`)

// Sources makes and removes the snapshots for the branched sandboxes.
type Sources struct {
	Client *client.Client
	Image  string
	// Create makes a snapshot and shows its progress.
	Create func(context.Context, api.CreateSnapshotRequest) (api.SnapshotInfo, error)

	made []string
}

// Make makes a snapshot for each size of memory, in MiB. The caller must call Remove even after an
// error.
func (s *Sources) Make(ctx context.Context, memory []int) (tags []string, err error) {
	for _, mib := range memory {
		tag := sourceTag(mib)
		tags = append(tags, tag)
		if slices.Contains(s.made, tag) {
			continue
		}
		_, err := s.Create(ctx, api.CreateSnapshotRequest{Tag: tag, Image: s.Image, MemoryMiB: mib})
		// A conflict means another owner. An interrupted request may have made the snapshot.
		if err == nil || client.CodeOf(err) != api.CodeConflict {
			s.made = append(s.made, tag)
		}
		if err != nil {
			return nil, err
		}
	}
	return tags, nil
}

// Remove deletes the snapshots from Make, even if ctx has ended.
func (s *Sources) Remove(ctx context.Context) error {
	var errs []error
	for _, tag := range s.made {
		errs = append(errs, measure.Delete(ctx, s.Client, tag, client.DeleteOptions{}))
	}
	return errors.Join(errs...)
}

// Sweep removes the leftovers of an earlier, killed run: snapshots with this benchmark's tags, the
// sandboxes that run from them, and the sandboxes that they were branched from. No other run may be
// under way. Sweep leaves the tags in keep. It calls say for each removal.
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
	branched := map[string]bool{} // by sandbox ID
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
	// A branch is deleted before the snapshot of its source.
	slices.SortFunc(left, func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(b, a)) })
	for _, tag := range left {
		say(fmt.Sprintf("snapshot %s was left by an earlier run, and is deleted", tag))
		if err := measure.Delete(ctx, c, tag, client.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}
